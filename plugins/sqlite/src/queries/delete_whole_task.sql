-- A task that is all in its row, as most are.
DELETE FROM tasks WHERE task = ?1 AND history <> 1 AND envelope IS NOT NULL;
