SELECT count(*) FROM tasks INDEXED BY tasks_place WHERE queue = ?1 AND lane = ?2 AND at > ?3;
