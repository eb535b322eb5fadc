SELECT name, config, config_updated_at FROM queues WHERE config IS NOT NULL ORDER BY name;
