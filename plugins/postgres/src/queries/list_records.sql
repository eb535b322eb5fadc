-- A page of records by key: from the start of the prefix to its end, behind a key, and made no later
-- than the list began. The first one that does not fit says that there is more.
WITH newest AS MATERIALIZED (
    SELECT coalesce($5::bigint, CASE WHEN is_called THEN last_value ELSE 0 END) AS number
    FROM record_numbers
)
SELECT newest.number AS newest, p.name, p.revision, p.updated_at, p.is_beyond,
    CASE WHEN NOT p.is_beyond THEN p.value END AS value
FROM newest LEFT JOIN (
    SELECT s.*, s.n > 1 AND (s.n > $6 OR s.so_far > $7) AS is_beyond
    FROM (
        SELECT r.*, row_number() OVER ordered AS n, octet_length(r.name) + octet_length(r.value)
            AS bytes, sum(octet_length(r.name) + octet_length(r.value)) OVER ordered AS so_far
        FROM (
            SELECT * FROM records
            WHERE space = $1 AND name >= greatest($2::text COLLATE "C", $3)
                AND name IS DISTINCT FROM $3 AND name < $4
                AND made IS NOT NULL AND made <= (SELECT number FROM newest)
            ORDER BY name LIMIT $6 + 1
        ) AS r
        WINDOW ordered AS (ORDER BY r.name ROWS UNBOUNDED PRECEDING)
    ) AS s
    WHERE s.n = 1 OR s.so_far - s.bytes <= $7
) AS p ON true
ORDER BY p.name
