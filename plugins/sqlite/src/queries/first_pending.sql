SELECT at FROM tasks INDEXED BY tasks_place
WHERE queue = ?1 AND lane = ?2 AND status = 0 ORDER BY at LIMIT 1;
