INSERT INTO events (stream, offset, created_at, key, payload) VALUES (?1, ?2, ?3, ?4, ?5);
