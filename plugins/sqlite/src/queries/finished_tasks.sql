-- The oldest of a lane of finished tasks; they finished in this order.
SELECT task, finished_at FROM tasks INDEXED BY tasks_place
WHERE queue = ?1 AND lane = ?2 ORDER BY at LIMIT ?3;
