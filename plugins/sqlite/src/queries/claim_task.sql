-- Of a pending task. 2147483650 is the lane of leased ones.
UPDATE tasks SET
    lane = 2147483650, at = ?2, status = 1, generation = ?3, ending = 0,
    next_attempt_at = NULL, lease_expires_at = ?2, claimed_at = ?4, claimed_by = ?5
WHERE task = ?1;
