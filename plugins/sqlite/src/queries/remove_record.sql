UPDATE records SET made = NULL, value = NULL WHERE record = ?1;
