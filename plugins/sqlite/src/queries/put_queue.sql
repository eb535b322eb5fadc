UPDATE queues SET config = ?2, config_updated_at = ?3 WHERE queue = ?1;
