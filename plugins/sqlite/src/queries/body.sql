SELECT envelope FROM bodies WHERE task = ?1;
