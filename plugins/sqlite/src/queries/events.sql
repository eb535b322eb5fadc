SELECT offset, created_at, key, payload FROM events INDEXED BY events_place
WHERE stream = ?1 AND offset > ?2 ORDER BY offset;
