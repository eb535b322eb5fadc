UPDATE state SET now = now WHERE one = 1;
