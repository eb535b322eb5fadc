INSERT INTO locks VALUES (?1, ?2, ?3, ?4)
ON CONFLICT (name) DO UPDATE SET generation = ?2, owner = ?3, expires_at = ?4;
