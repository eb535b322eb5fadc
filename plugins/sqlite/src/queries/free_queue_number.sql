-- The first number after a queue's, from ?1 on and up to ?2, that no other queue has.
SELECT queue + 1
FROM queues AS taken
WHERE queue >= ?1 AND queue < ?2
    AND NOT EXISTS (SELECT 1 FROM queues WHERE queue = taken.queue + 1)
LIMIT 1;
