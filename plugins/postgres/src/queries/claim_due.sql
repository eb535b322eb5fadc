SELECT claim, n, next_due_in, history::text AS history, (task).*
FROM claim_batch($1, $2, $3, $4, $5, $6, $7, $8, $9)
