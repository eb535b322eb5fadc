INSERT INTO streams (name) VALUES (?1) RETURNING stream;
