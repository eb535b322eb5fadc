-- A task that is claimed as it is admitted. 2147483650 is the lane of leased ones.
INSERT INTO tasks (
    task, id, queue, lane, at, status, generation, lease_expires_at, claimed_at, claimed_by,
    expires_at, created_at, priority, handler_ref,
    max_attempts, lease, initial_backoff, retention_dead, envelope
) VALUES (
    ?1, ?2, ?3, 2147483650, ?4, 1, ?5, ?4, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16
)
ON CONFLICT (id) DO NOTHING;
