DELETE FROM bodies WHERE task = ?1;
