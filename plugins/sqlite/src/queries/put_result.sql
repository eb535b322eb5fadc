UPDATE tasks SET result = ?2 WHERE task = ?1;
