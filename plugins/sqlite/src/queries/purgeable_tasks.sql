-- Dead letters whose own retention is over.
SELECT task FROM tasks INDEXED BY tasks_purge
WHERE queue = ?1 AND purge_at <= ?2 ORDER BY purge_at LIMIT ?3;
