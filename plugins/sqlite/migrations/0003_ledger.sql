-- The ledger. Scopes compare by their bytes.

CREATE TABLE mutations (
    mutation INTEGER PRIMARY KEY,
    subject TEXT NOT NULL,
    operation TEXT NOT NULL,
    key TEXT NOT NULL,
    kind TEXT NOT NULL,
    eligibility_claim BLOB NOT NULL,
    fingerprint BLOB NOT NULL CHECK (length(fingerprint) = 32),
    status TEXT NOT NULL CHECK (status IN ('accepted', 'rejected')),
    response BLOB NOT NULL,
    -- What the other operations of its commit were answered, as the SPI writes it.
    answers BLOB NOT NULL,
    observed_at INTEGER NOT NULL,
    UNIQUE (subject, operation, key)
) STRICT;

-- The oldest are pruned first.
CREATE INDEX mutations_age ON mutations (observed_at);
