SELECT owner, generation, expires_at, remaining FROM renew_lock($1, $2, $3, $4)
