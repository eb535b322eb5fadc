-- Moves what has come due out of a lane (?2, delayed or leased) into those of due tasks.
UPDATE tasks SET lane = -priority WHERE task IN (
    SELECT task FROM tasks INDEXED BY tasks_place
    WHERE queue = ?1 AND lane = ?2 AND at <= ?3 ORDER BY at LIMIT ?4
);
