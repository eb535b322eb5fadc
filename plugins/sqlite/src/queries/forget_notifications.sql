-- Of the oldest ?2 those from before ?1. Their instants grow with their numbers.
DELETE FROM notifications WHERE number IN (
    SELECT number FROM (SELECT number, notified_at FROM notifications ORDER BY number LIMIT ?2)
    WHERE notified_at < ?1
) RETURNING number;
