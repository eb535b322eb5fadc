-- Never back: who saved nothing stands at 0.
INSERT INTO offsets VALUES (?1, ?2, max(?3, 0))
ON CONFLICT (stream, consumer) DO UPDATE SET offset = max(offset, excluded.offset)
RETURNING offset;
