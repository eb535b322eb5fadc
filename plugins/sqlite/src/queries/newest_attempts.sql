SELECT record FROM attempts WHERE task = ?1 ORDER BY ordinal DESC LIMIT ?2;
