DELETE FROM queues WHERE queue IN (
    SELECT queue FROM queues INDEXED BY queues_empty
    WHERE config IS NULL AND pending + in_flight + succeeded + dead + cancelled = 0 LIMIT ?1
) RETURNING queue;
