SELECT owner, generation, expires_at, remaining FROM try_lock($1, $2, $3)
