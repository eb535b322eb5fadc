SELECT c.n, t.lease_expires_at - now.ms AS remaining
FROM unnest($1::text[], $2::bigint[]) WITH ORDINALITY AS c (id, generation, n)
CROSS JOIN (SELECT clock_ms() AS ms) AS now
LEFT JOIN tasks t ON t.id = c.id AND t.generation = c.generation AND t.status = 1
    AND t.lease_expires_at > now.ms
ORDER BY c.n
