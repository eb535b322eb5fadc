SELECT queue FROM queues WHERE name = ?1;
