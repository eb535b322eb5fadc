INSERT INTO tasks (
    task, id, queue, lane, at, status, attempt_count, redrive_count, lease_expired_count,
    last_attempt_no, next_attempt_at, expires_at, created_at, priority, handler_ref,
    max_attempts, lease, initial_backoff, retention_dead, progress, envelope
) VALUES (?1, ?2, ?3, ?4, ?5, 0, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20)
ON CONFLICT (id) DO NOTHING;
