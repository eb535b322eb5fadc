-- Of each queue: whether something is due, and how long until the first that waits may be.
SELECT
    EXISTS (SELECT FROM unfinished t WHERE t.queue = q.name AND t.lane = 0) AS is_ready,
    (SELECT t.at FROM unfinished t WHERE t.queue = q.name AND t.lane = 1 ORDER BY t.at LIMIT 1) - now.ms
        AS waiting_for
FROM unnest($1::text[]) WITH ORDINALITY AS q (name, n)
CROSS JOIN (SELECT clock_ms() AS ms) AS now
ORDER BY q.n
