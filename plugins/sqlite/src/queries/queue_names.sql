SELECT name FROM queues
WHERE name > ?1
    AND (config IS NOT NULL OR pending + in_flight + succeeded + dead + cancelled > 0)
ORDER BY name LIMIT ?2;
