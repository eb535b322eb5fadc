-- The ledger: one row a mutation, written in the transaction of its effects. SCHEMA.md says what others
-- may rely on.

-- Scopes compare by their bytes.
CREATE TABLE mutations (
    observed_at bigint NOT NULL,
    subject text COLLATE "C" NOT NULL,
    operation text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    kind text COLLATE "C" NOT NULL,
    eligibility_claim bytea NOT NULL,
    fingerprint bytea NOT NULL CHECK (octet_length(fingerprint) = 32),
    status text NOT NULL CHECK (status IN ('accepted', 'rejected')),
    response bytea NOT NULL,
    -- What the other operations of its commit were answered, as the SPI writes it.
    answers bytea NOT NULL,
    PRIMARY KEY (subject, operation, key)
) WITH (
    -- Room for the answers beside a row: they come last, and touch no index.
    fillfactor = 85,
    autovacuum_vacuum_scale_factor = 0.05,
    autovacuum_vacuum_cost_delay = 0
);

-- The oldest are pruned first.
CREATE INDEX mutations_age ON mutations (observed_at);

-- Records a mutation whose scope has no record, and answers nothing; else answers the record. Of two
-- that are observed at once the later one waits here, until the first has committed or failed.
CREATE FUNCTION observe(
    p_subject text, p_operation text, p_key text, p_kind text, p_eligibility_claim bytea,
    p_fingerprint bytea, p_status text, p_response bytea, p_answers bytea
) RETURNS SETOF mutations LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_now bigint;
BEGIN
    LOOP
        v_now := clock_ms();
        INSERT INTO mutations (
            observed_at, subject, operation, key, kind, eligibility_claim, fingerprint, status,
            response, answers
        ) VALUES (
            v_now, p_subject, p_operation, p_key, p_kind, p_eligibility_claim, p_fingerprint,
            p_status, p_response, p_answers
        ) ON CONFLICT DO NOTHING;
        IF FOUND THEN
            -- It may have waited for one that failed: it is observed now.
            IF clock_ms() <> v_now THEN
                UPDATE mutations m SET observed_at = clock_ms()
                WHERE m.subject = p_subject AND m.operation = p_operation AND m.key = p_key;
            END IF;
            RETURN;
        END IF;
        RETURN QUERY SELECT * FROM mutations m
            WHERE m.subject = p_subject AND m.operation = p_operation AND m.key = p_key;
        -- What was in the way may have been pruned meanwhile.
        EXIT WHEN FOUND;
    END LOOP;
END;
$$;
