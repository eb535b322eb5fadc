-- The last number of all, and up to which notifications may be gone.
SELECT seq, forgotten FROM state WHERE one = 1;
