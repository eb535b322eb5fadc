SELECT space, name, revision FROM compare_and_set_batch($1, $2, $3, $4)
