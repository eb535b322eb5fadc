UPDATE mutations SET answers = $4 WHERE subject = $1 AND operation = $2 AND key = $3
