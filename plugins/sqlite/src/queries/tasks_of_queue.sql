-- A queue's tasks by admission, the newest first: the keys of one queue are one range.
SELECT * FROM tasks WHERE task >= ?1 AND task < ?2 ORDER BY task DESC;
