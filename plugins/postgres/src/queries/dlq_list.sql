-- A page of a queue's dead letters by their death, newest first, and where the next begins.
WITH examined AS MATERIALIZED (
    SELECT id, finish_seq, finished_at, final_error_type, handler_ref,
        envelope_bytes(envelope, seq) + coalesce(octet_length(progress), 0)
            + CASE WHEN $9 THEN history_bytes + 48 * records ELSE light_weight(seq, 1) END AS bytes
    FROM finished
    WHERE queue = $1 AND status = 3 AND finish_seq < $2
    ORDER BY finish_seq DESC LIMIT $10
),
matching AS MATERIALIZED (
    SELECT e.*, row_number() OVER ordered AS n, sum(bytes) OVER ordered AS so_far
    FROM examined e
    WHERE ($3::text IS NULL OR final_error_type = $3) AND ($4::text IS NULL OR handler_ref = $4)
        AND ($5::bigint IS NULL OR finished_at >= $5) AND ($6::bigint IS NULL OR finished_at < $6)
    WINDOW ordered AS (ORDER BY finish_seq DESC)
),
page AS MATERIALIZED (
    SELECT * FROM matching WHERE n = 1 OR n <= $7 AND so_far <= $8
),
rest AS (
    SELECT CASE
        WHEN (SELECT count(*) FROM page) < (SELECT count(*) FROM matching)
            THEN (SELECT min(finish_seq) FROM page)
        -- Nothing further down died later.
        WHEN (SELECT min(finished_at) FROM examined) < $5 THEN NULL
        WHEN (SELECT count(*) FROM examined) = $10 THEN (SELECT min(finish_seq) FROM examined)
    END AS next
)
SELECT r.next, t.*,
    history(t.seq, CASE WHEN $9 THEN 2147483647 ELSE 1 END, $9)::text AS history
FROM rest r LEFT JOIN (page p JOIN tasks t ON t.id = p.id) ON true
ORDER BY p.finish_seq DESC
