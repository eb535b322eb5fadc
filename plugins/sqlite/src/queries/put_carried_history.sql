UPDATE tasks SET history = ?2, only_attempt = ?3 WHERE task = ?1;
