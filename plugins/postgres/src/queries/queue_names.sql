-- From one queue's tasks to the next queue's, without reading what is between.
WITH RECURSIVE waiting AS (
    (SELECT queue AS name FROM unfinished WHERE queue > $1 ORDER BY queue LIMIT 1)
    UNION ALL
    SELECT (SELECT u.queue FROM unfinished u WHERE u.queue > w.name ORDER BY u.queue LIMIT 1)
    FROM waiting w WHERE w.name IS NOT NULL
),
ended AS (
    (SELECT queue AS name FROM finished WHERE queue > $1 ORDER BY queue LIMIT 1)
    UNION ALL
    SELECT (SELECT f.queue FROM finished f WHERE f.queue > e.name ORDER BY f.queue LIMIT 1)
    FROM ended e WHERE e.name IS NOT NULL
)
SELECT name FROM (
    (SELECT name FROM waiting WHERE name IS NOT NULL LIMIT $2)
    UNION
    (SELECT name FROM ended WHERE name IS NOT NULL LIMIT $2)
    UNION
    (SELECT name FROM queues WHERE name > $1 ORDER BY name LIMIT $2)
) AS names
ORDER BY name LIMIT $2
