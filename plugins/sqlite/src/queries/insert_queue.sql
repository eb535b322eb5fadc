INSERT INTO queues (name) VALUES (?1) RETURNING queue;
