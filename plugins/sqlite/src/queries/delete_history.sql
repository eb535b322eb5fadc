DELETE FROM histories WHERE task = ?1;
