UPDATE streams SET last = ?2 WHERE stream = ?1;
