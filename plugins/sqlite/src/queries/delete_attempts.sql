DELETE FROM attempts WHERE task = ?1;
