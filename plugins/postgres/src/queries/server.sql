SELECT
    current_setting('server_version_num')::integer AS version,
    current_setting('server_version') AS version_name,
    current_setting('fsync') AS fsync,
    current_setting('full_page_writes') AS full_page_writes,
    CASE WHEN pg_is_in_recovery() THEN 'on' ELSE 'off' END AS pg_is_in_recovery,
    current_setting('default_transaction_read_only') AS default_transaction_read_only,
    current_setting('server_encoding') AS server_encoding
