-- Whether the schema has our version table, and whether it has anything at all.
SELECT
    coalesce(bool_or(c.relname = 'schema_version' AND EXISTS (
        SELECT FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attname = 'version'
    )), false) AS is_ours,
    count(c.oid) = 0 AS is_empty
FROM pg_namespace n LEFT JOIN pg_class c ON c.relnamespace = n.oid
WHERE n.nspname = $1
