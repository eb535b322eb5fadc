SELECT revision, updated_at, value FROM records WHERE space = ?1 AND key = ?2 AND made IS NOT NULL;
