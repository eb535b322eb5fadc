INSERT INTO notifications VALUES (?1, ?2, ?3)
ON CONFLICT (channel) DO UPDATE SET number = excluded.number, notified_at = excluded.notified_at;
