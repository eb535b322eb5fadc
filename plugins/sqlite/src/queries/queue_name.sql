SELECT name FROM queues WHERE queue = ?1;
