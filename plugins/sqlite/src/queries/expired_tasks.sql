SELECT * FROM tasks INDEXED BY tasks_expiry
WHERE queue = ?1 AND expires_at <= ?2 AND status <= 1
ORDER BY expires_at LIMIT ?3;
