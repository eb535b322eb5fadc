SELECT * FROM tasks WHERE task = ?1;
