-- Which of these are their task's newest claim, live or not. Who held one that has ended is not kept.
SELECT t.id IS NOT NULL AS is_newest
FROM unnest($1::text[], $2::text[], $3::bigint[]) WITH ORDINALITY AS c (id, worker, generation, n)
LEFT JOIN tasks t ON t.id = c.id AND t.generation = c.generation AND t.generation > 0
    AND (t.claimed_by IS NULL OR t.claimed_by = c.worker)
ORDER BY c.n
