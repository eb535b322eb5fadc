-- The oldest mutations from before an instant.
DELETE FROM mutations WHERE mutation IN (
    SELECT mutation FROM mutations INDEXED BY mutations_age
    WHERE observed_at < ?1 ORDER BY observed_at LIMIT ?2
);
