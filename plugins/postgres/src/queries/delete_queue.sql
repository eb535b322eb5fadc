WITH held AS MATERIALIZED (
    SELECT EXISTS (SELECT FROM unfinished WHERE queue = $1)
        OR EXISTS (SELECT FROM finished WHERE queue = $1) AS holds_tasks
),
removed AS (
    DELETE FROM queues USING held WHERE name = $1 AND NOT holds_tasks RETURNING name
)
SELECT holds_tasks, EXISTS (SELECT FROM removed) AS removed FROM held
