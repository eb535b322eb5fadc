UPDATE state SET forgotten = max(forgotten, ?1) WHERE one = 1;
