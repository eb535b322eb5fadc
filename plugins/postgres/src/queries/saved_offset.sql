SELECT saved FROM offsets WHERE stream = $1 AND consumer = $2
