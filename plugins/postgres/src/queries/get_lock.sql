SELECT owner, generation, expires_at, expires_at - now.ms AS remaining
FROM locks CROSS JOIN (SELECT clock_ms() AS ms) AS now
WHERE name = $1 AND expires_at > now.ms
