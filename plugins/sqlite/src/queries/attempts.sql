SELECT record, heavy FROM attempts WHERE task = ?1 ORDER BY ordinal;
