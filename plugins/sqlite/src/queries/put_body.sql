INSERT INTO bodies (task, envelope) VALUES (?1, ?2);
