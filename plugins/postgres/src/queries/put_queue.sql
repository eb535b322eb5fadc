INSERT INTO queues (name, config, updated_at) VALUES ($1, $2, clock_ms())
ON CONFLICT (name) DO UPDATE SET config = excluded.config, updated_at = excluded.updated_at
RETURNING updated_at
