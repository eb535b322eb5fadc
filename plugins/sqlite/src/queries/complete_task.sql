-- The usual end of a task: held by this claim, its first attempt, nothing to tell of it.
UPDATE tasks SET
    lane = 2147483651, at = ?4, status = 2, ending = ?5, history = 2, finished_at = ?6,
    attempt_count = attempt_count + 1, last_attempt_no = last_attempt_no + 1,
    lease_expires_at = NULL
WHERE task = ?1 AND id = ?2 AND generation = ?3 AND status = 1
    AND history = 0 AND only_attempt IS NULL AND (?7 = 0 OR lease_expires_at > ?6);
