SELECT store_id, now, host_now, seq, generation, finish_seq FROM state WHERE one = 1;
