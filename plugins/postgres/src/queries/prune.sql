-- At most so many of the oldest mutations that are older than that. Who prunes at the same time is
-- waited for, and what it removed is passed over.
DELETE FROM mutations WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM mutations WHERE observed_at < (SELECT clock_ms() - $1)
    ORDER BY observed_at LIMIT $2 FOR UPDATE
))
