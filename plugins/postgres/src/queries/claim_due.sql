SELECT claim, next_due_in, was_due, seq, generation, created_at, claimed_at, lease_expires_at,
    expires_at, attempt_count, redrive_count, lease_expired_count, last_attempt_no, max_attempts,
    lease, initial_backoff, retention_dead, rank, id, queue, handler_ref, progress, envelope, history
FROM claim_batch($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
