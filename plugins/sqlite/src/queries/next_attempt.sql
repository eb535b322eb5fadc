SELECT ordinal, record, heavy FROM attempts
WHERE task = ?1 AND ordinal >= ?2 ORDER BY ordinal LIMIT 1;
