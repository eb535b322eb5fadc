DELETE FROM attempts WHERE task = ?1 AND ordinal = ?2;
