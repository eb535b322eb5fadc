-- Dead letters that died before number ?2, the newest first.
SELECT * FROM tasks INDEXED BY tasks_place
WHERE queue = ?1 AND lane = 2147483652 AND at < ?2 ORDER BY at DESC;
