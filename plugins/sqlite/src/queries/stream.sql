SELECT stream, last FROM streams WHERE name = ?1;
