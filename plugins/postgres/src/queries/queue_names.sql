-- From one queue's tasks to the next queue's, without reading what is between.
WITH RECURSIVE holding AS (
    (SELECT queue AS name FROM tasks WHERE queue > $1 ORDER BY queue LIMIT 1)
    UNION ALL
    SELECT (SELECT t.queue FROM tasks t WHERE t.queue > h.name ORDER BY t.queue LIMIT 1)
    FROM holding h WHERE h.name IS NOT NULL
)
SELECT name FROM (
    (SELECT name FROM holding WHERE name IS NOT NULL LIMIT $2)
    UNION
    (SELECT name FROM queues WHERE name > $1 ORDER BY name LIMIT $2)
) AS names
ORDER BY name LIMIT $2
