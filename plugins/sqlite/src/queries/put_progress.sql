UPDATE tasks SET progress = ?2 WHERE task = ?1;
