-- What is due, in the order of claims: priority, due time, admission.
SELECT * FROM tasks INDEXED BY tasks_place
WHERE queue = ?1 AND lane <= 2147483648 ORDER BY lane, at, task LIMIT ?2;
