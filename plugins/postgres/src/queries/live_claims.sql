SELECT c.n, u.lease_expires_at - now.ms AS remaining
FROM unnest($1::text[], $2::bigint[]) WITH ORDINALITY AS c (id, generation, n)
CROSS JOIN (SELECT clock_ms() AS ms) AS now
LEFT JOIN unfinished u ON u.id = c.id AND u.generation = c.generation AND u.status = 1
    AND u.lease_expires_at > now.ms
ORDER BY c.n
