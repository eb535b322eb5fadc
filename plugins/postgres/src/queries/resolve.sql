SELECT verdict, status, next_attempt_at, queue, due_in
FROM resolve_batch($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14) ORDER BY n
