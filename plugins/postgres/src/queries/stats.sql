SELECT
    r.pending + w.ready AS ready, w.delayed,
    r.in_flight + w.in_flight AS in_flight, r.in_flight + w.lapsed AS lapsed,
    f.succeeded, f.dead, f.cancelled,
    now.ms - least(r.oldest, w.oldest) AS oldest_age
FROM (SELECT clock_ms() AS ms) AS now
CROSS JOIN LATERAL (
    SELECT count(*) FILTER (WHERE status = 0) AS pending,
        count(*) FILTER (WHERE status = 1) AS in_flight, min(at) FILTER (WHERE status = 0) AS oldest
    FROM unfinished WHERE queue = $1 AND lane = 0
) AS r
CROSS JOIN LATERAL (
    SELECT count(*) FILTER (WHERE status = 0 AND at <= now.ms) AS ready,
        count(*) FILTER (WHERE status = 0 AND at > now.ms) AS delayed,
        count(*) FILTER (WHERE status = 1) AS in_flight,
        count(*) FILTER (WHERE status = 1 AND lease_expires_at <= now.ms) AS lapsed,
        min(at) FILTER (WHERE status = 0 AND at <= now.ms) AS oldest
    FROM unfinished WHERE queue = $1 AND lane = 1
) AS w
CROSS JOIN LATERAL (
    SELECT count(*) FILTER (WHERE status = 2) AS succeeded,
        count(*) FILTER (WHERE status = 3) AS dead, count(*) FILTER (WHERE status = 4) AS cancelled
    FROM finished WHERE queue = $1
) AS f
