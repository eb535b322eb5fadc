-- The oldest dead letters without a retention of their own.
SELECT task, finished_at FROM tasks INDEXED BY tasks_dead
WHERE queue = ?1 AND status = 3 AND purge_at IS NULL ORDER BY at LIMIT ?2;
