UPDATE state SET now = ?1, host_now = ?2, seq = ?3, generation = ?4, finish_seq = ?5 WHERE one = 1;
