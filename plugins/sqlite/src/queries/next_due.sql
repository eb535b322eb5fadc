-- Of a queue: the lane of its first due task, if any, and when the first delayed task and the first
-- lease come due. 2147483648 is the last lane of due tasks; delayed and leased follow.
SELECT
    (SELECT lane FROM tasks INDEXED BY tasks_place
        WHERE queue = ?1 AND lane <= 2147483648 ORDER BY lane LIMIT 1),
    (SELECT at FROM tasks INDEXED BY tasks_place
        WHERE queue = ?1 AND lane = 2147483649 ORDER BY at LIMIT 1),
    (SELECT at FROM tasks INDEXED BY tasks_place
        WHERE queue = ?1 AND lane = 2147483650 ORDER BY at LIMIT 1);
