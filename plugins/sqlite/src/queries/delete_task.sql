DELETE FROM tasks WHERE task = ?1;
