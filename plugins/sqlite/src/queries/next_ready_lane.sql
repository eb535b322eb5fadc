SELECT lane FROM tasks INDEXED BY tasks_place
WHERE queue = ?1 AND lane > ?2 AND lane <= 2147483648 ORDER BY lane LIMIT 1;
