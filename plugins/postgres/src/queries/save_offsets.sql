SELECT stream, consumer, saved FROM save_offsets_batch($1, $2, $3)
