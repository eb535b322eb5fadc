-- Events after an offset, or after what a consumer saved, bounded in number and bytes.
SELECT event_offset, created_at, key, payload FROM (
    SELECT e.*, row_number() OVER ordered AS n,
        sum(octet_length(e.payload) + coalesce(octet_length(e.key), 0)) OVER ordered AS so_far
    FROM (
        SELECT * FROM events
        WHERE stream = (SELECT id FROM streams WHERE name = $1) AND event_offset > coalesce(
            $2, (SELECT saved FROM offsets WHERE stream = $1 AND consumer = $3), 0)
        ORDER BY event_offset LIMIT $4
    ) AS e
    WINDOW ordered AS (ORDER BY e.event_offset ROWS UNBOUNDED PRECEDING)
) AS page
WHERE n = 1 OR so_far <= $5
ORDER BY event_offset
