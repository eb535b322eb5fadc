SELECT verdict, lease_expires_at, queue, remaining
FROM extend_batch($1, $2, $3, $4, $5, $6) ORDER BY n
