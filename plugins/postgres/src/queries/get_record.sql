SELECT name, value, revision, updated_at FROM records
WHERE space = $1 AND name = $2 AND made IS NOT NULL
