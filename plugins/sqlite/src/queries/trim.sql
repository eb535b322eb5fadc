-- The oldest events up to a horizon.
DELETE FROM events WHERE event IN (
    SELECT event FROM events INDEXED BY events_place
    WHERE stream = ?1 AND offset <= ?2 ORDER BY offset LIMIT ?3
);
