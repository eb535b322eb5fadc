INSERT INTO attempts (task, ordinal, record, heavy) VALUES (?1, ?2, ?3, ?4)
ON CONFLICT (task, ordinal) DO UPDATE SET record = ?3, heavy = ?4;
