SELECT removed, more FROM trim_step($1, $2, $3)
