SELECT event_offset FROM publish_batch($1, $2, $3) ORDER BY n
