SELECT generation, owner, expires_at FROM locks WHERE name = ?1;
