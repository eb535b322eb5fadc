UPDATE records SET revision = ?2, made = ?3, updated_at = ?4, value = ?5 WHERE record = ?1;
