-- Of those who come at once, the first to insert is whom all others read: an update that changes
-- nothing makes the stored one visible to this statement.
INSERT INTO secrets (name, secret) VALUES ($1, $2)
ON CONFLICT (name) DO UPDATE SET secret = secrets.secret
RETURNING secret
