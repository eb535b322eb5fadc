-- A page of a queue's tasks by admission, newest first, and where the next begins. Sizes are summed
-- before anything large is read.
WITH examined AS MATERIALIZED (
    SELECT id, seq, status,
        octet_length(envelope) + coalesce(octet_length(progress), 0)
            + coalesce(octet_length(result), 0)
            + CASE WHEN $6 THEN history_bytes + 48 * (records + 1) ELSE 0 END AS bytes
    FROM tasks WHERE queue = $1 AND seq < $2 ORDER BY seq DESC LIMIT $7
),
matching AS MATERIALIZED (
    SELECT e.*, row_number() OVER ordered AS n, sum(bytes) OVER ordered AS so_far
    FROM examined e WHERE $3::smallint IS NULL OR status = $3 WINDOW ordered AS (ORDER BY seq DESC)
),
page AS MATERIALIZED (
    SELECT * FROM matching WHERE n = 1 OR n <= $4 AND so_far <= $5
),
rest AS (
    SELECT CASE
        WHEN (SELECT count(*) FROM page) < (SELECT count(*) FROM matching)
            THEN (SELECT min(seq) FROM page)
        WHEN (SELECT count(*) FROM examined) = $7 THEN (SELECT min(seq) FROM examined)
    END AS next
)
SELECT r.next, t.*,
    CASE WHEN $6 AND t.records > 0 THEN history(t.seq, 2147483647, true) END::text AS history
FROM rest r LEFT JOIN (page p JOIN tasks t ON t.id = p.id) ON true
ORDER BY p.seq DESC
