UPDATE tasks SET
    lane = ?2, at = ?3, status = ?4, generation = ?5, ending = ?6,
    attempt_count = ?7, redrive_count = ?8, lease_expired_count = ?9, last_attempt_no = ?10,
    next_attempt_at = ?11, lease_expires_at = ?12, claimed_at = ?13, claimed_by = ?14,
    finished_at = ?15, purge_at = ?16, final_error_type = ?17, history = ?18, only_attempt = ?19
WHERE task = ?1;
