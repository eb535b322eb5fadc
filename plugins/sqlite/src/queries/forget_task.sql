-- Removes a task that this claim holds, as it does when a success is kept for no time, if it is all in its row.
DELETE FROM tasks
WHERE task = ?1 AND id = ?2 AND generation = ?3 AND status = 1 AND ending = 0
    AND (?4 = 0 OR lease_expires_at > ?5) AND history <> 1 AND envelope IS NOT NULL;
