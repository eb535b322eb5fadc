SELECT name, config, updated_at FROM queues ORDER BY name
