SELECT t.*, history(t.seq, 2147483647, true)::text AS history FROM tasks t WHERE t.id = $1
