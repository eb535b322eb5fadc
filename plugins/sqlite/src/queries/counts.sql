SELECT pending, in_flight, succeeded, dead, cancelled FROM queues WHERE queue = ?1;
