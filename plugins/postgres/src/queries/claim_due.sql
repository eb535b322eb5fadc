SELECT claim, n, next_due_in, was_due, history::text AS history, (task).*
FROM claim_batch($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)
