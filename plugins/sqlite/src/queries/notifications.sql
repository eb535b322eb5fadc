SELECT channel FROM notifications WHERE number > ?1 ORDER BY number;
