INSERT INTO queues (queue, name) VALUES (?1, ?2);
