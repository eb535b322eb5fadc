INSERT INTO records (space, key, revision, made, updated_at, value)
VALUES (?1, ?2, 1, ?3, ?4, ?5);
