UPDATE queues SET
    pending = pending + ?2, in_flight = in_flight + ?3, succeeded = succeeded + ?4,
    dead = dead + ?5, cancelled = cancelled + ?6
WHERE queue = ?1;
