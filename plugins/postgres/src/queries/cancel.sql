SELECT verdict, status FROM cancel_batch($1) ORDER BY n
