INSERT INTO secrets (name, secret) VALUES (?1, ?2) ON CONFLICT (name) DO NOTHING;
