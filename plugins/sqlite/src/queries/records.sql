-- Records from one key to below another, without the values of those made after number ?4.
SELECT key, made, revision, updated_at, CASE WHEN made <= ?4 THEN value END
FROM records INDEXED BY records_there
WHERE space = ?1 AND key >= ?2 AND key < ?3 AND made IS NOT NULL
ORDER BY key;
