-- Tasks, their histories, their queues' configurations, and what all servers share.
-- Instants are milliseconds since the Unix epoch. Text is compared byte by byte, whatever the
-- database's collation. SCHEMA.md says what others may rely on.

-- One row: what this store is.
CREATE TABLE store (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    -- Random; part of every claim token, so that a token of another store is refused.
    store_id bytea NOT NULL
);

INSERT INTO store (store_id) SELECT substring(uuid_send(gen_random_uuid()) FOR 8);

-- Admissions, claims and ends are counted, so that of two the later one is known. A number that was
-- drawn is never drawn again, whatever became of its transaction.
CREATE SEQUENCE admissions;
CREATE SEQUENCE claims;
CREATE SEQUENCE ends;

CREATE TABLE queues (
    name text COLLATE "C" PRIMARY KEY,
    config text NOT NULL,
    updated_at bigint NOT NULL
);

CREATE TABLE secrets (
    name text COLLATE "C" PRIMARY KEY,
    secret bytea NOT NULL
);

-- Wide columns come first, so that no bytes are lost to alignment; the envelope is last.
CREATE TABLE tasks (
    -- The number of its admission.
    seq bigint NOT NULL,
    -- Its order in its lane. Ready: when it became due. Waiting: when to look at it, never later
    -- than its due time or its lease's end; a heartbeat does not move it, so that it changes no
    -- index.
    at bigint NOT NULL,
    -- Of the last claim; 0 before the first.
    generation bigint NOT NULL DEFAULT 0,
    created_at bigint NOT NULL,
    -- Kept after the task ended: a repeated call is answered by it.
    next_attempt_at bigint,
    lease_expires_at bigint,
    claimed_at bigint,
    expires_at bigint,
    finished_at bigint,
    -- The number of its end.
    finish_seq bigint,
    -- When a dead letter with a retention of its own is removed.
    purge_at bigint,
    attempt_count bigint NOT NULL,
    redrive_count bigint NOT NULL,
    lease_expired_count bigint NOT NULL,
    last_attempt_no bigint NOT NULL,
    -- Overrides. Durations are nanoseconds; below zero, whole seconds, for what is longer.
    max_attempts bigint,
    lease bigint,
    initial_backoff bigint,
    retention_dead bigint,
    priority integer NOT NULL,
    -- Its history in `attempts`: the next ordinal, how many records were folded away, its weight.
    records integer NOT NULL DEFAULT 0,
    folds integer NOT NULL DEFAULT 0,
    history_bytes integer NOT NULL DEFAULT 0,
    -- 0 ready: due, or its lease has lapsed. 1 waiting: delayed, or leased. 2 finished.
    lane smallint NOT NULL,
    -- 0 pending, 1 in flight, 2 succeeded, 3 dead, 4 cancelled.
    status smallint NOT NULL,
    -- How the last claim ended: what a repeated or late call is answered by. 0: it did not. 1: by a
    -- cancellation. 2: by its expiry. Else 8 * call + status (calls: 1 complete, 2 reschedule, 3
    -- dead-letter, 4 fail, 5 release).
    ending smallint NOT NULL DEFAULT 0,
    -- The last record is not in `attempts`: it is a success with nothing to tell, of the claim that
    -- claimed_at and claimed_by still name.
    plain_success boolean NOT NULL DEFAULT false,
    id text COLLATE "C" NOT NULL,
    queue text COLLATE "C" NOT NULL,
    handler_ref text COLLATE "C" NOT NULL,
    claimed_by text COLLATE "C",
    -- Of the attempt that a dead letter died of.
    final_error_type text COLLATE "C",
    progress bytea,
    result bytea,
    envelope bytea NOT NULL,
    PRIMARY KEY (id)
) WITH (
    -- Room for heartbeats beside the row they replace.
    fillfactor = 85,
    -- A queue's rows die young, and dead ones at the head of an index slow every claim.
    autovacuum_vacuum_scale_factor = 0.01,
    autovacuum_vacuum_threshold = 2000,
    autovacuum_vacuum_cost_delay = 0,
    autovacuum_analyze_scale_factor = 0.05
);

-- Lists: a queue's tasks by admission.
CREATE INDEX tasks_queue ON tasks (queue, seq);
-- What is due, in the order of claims. What waits for later is not in its way. ~ turns the order of
-- priorities around, so that a place in the index is one comparison of rows.
CREATE INDEX tasks_ready ON tasks (queue, (~priority), at, seq) WHERE lane = 0;
CREATE INDEX tasks_waiting ON tasks (queue, at) WHERE lane = 1;
-- What is kept, by its end.
CREATE INDEX tasks_finished ON tasks (queue, status, finish_seq) WHERE lane = 2;
-- Dead letters that the queue's retention removes, and those with a retention of their own.
CREATE INDEX tasks_dead ON tasks (queue, finish_seq) WHERE status = 3 AND purge_at IS NULL;
CREATE INDEX tasks_purge ON tasks (queue, purge_at) WHERE purge_at IS NOT NULL;
-- Unfinished tasks that expire.
CREATE INDEX tasks_expiry ON tasks (queue, expires_at) WHERE expires_at IS NOT NULL AND lane < 2;

-- Histories, one row for each record. They go with their task, which nothing but the functions of
-- this schema removes.
CREATE TABLE attempts (
    task bigint NOT NULL,
    ordinal integer NOT NULL,
    attempt_no bigint NOT NULL,
    started_at bigint,
    finished_at bigint,
    -- 1 success, 2 retryable failure, 3 permanent failure, 4 lease expired, 5 cancelled.
    outcome smallint,
    worker_id text COLLATE "C",
    -- NULL if there was no error.
    error_type text COLLATE "C",
    message text COLLATE "C",
    detail text COLLATE "C",
    stack text COLLATE "C",
    -- What came beside the known fields.
    extra bytea NOT NULL,
    -- Above 0: this record stands for so many.
    folded_count bigint NOT NULL,
    PRIMARY KEY (task, ordinal)
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);

-- The storage's clock. Never now(): it stands still in a transaction, and a lease that was waited
-- for would have begun before it was granted.
CREATE FUNCTION clock_ms() RETURNS bigint LANGUAGE sql VOLATILE
    RETURN floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint;

-- So long after an instant, cut to the range of instants. NULL if either is (which least() would
-- pass over).
CREATE FUNCTION later(p_from bigint, p_millis bigint) RETURNS bigint LANGUAGE sql IMMUTABLE
    RETURN CASE
        WHEN p_from + p_millis < 253402300799999 THEN p_from + p_millis
        WHEN p_from + p_millis >= 253402300799999 THEN 253402300799999
    END;

-- How long until an instant: not below zero, and NULL if it is not known.
CREATE FUNCTION until(p_at bigint, p_now bigint) RETURNS bigint LANGUAGE sql IMMUTABLE
    RETURN CASE WHEN p_at > p_now THEN p_at - p_now WHEN p_at <= p_now THEN 0 END;

-- An instant that was given as one, or as so long after now.
CREATE FUNCTION moment(p_at bigint, p_in bigint, p_now bigint) RETURNS bigint
    LANGUAGE sql IMMUTABLE
    RETURN coalesce(p_at, later(p_now, p_in));

-- A stored duration in milliseconds, rounded up.
CREATE FUNCTION millis(p_duration bigint) RETURNS bigint LANGUAGE sql IMMUTABLE
    RETURN CASE
        WHEN p_duration >= 0 THEN p_duration / 1000000 + (p_duration % 1000000 > 0)::integer
        WHEN p_duration < 0 THEN least(-(p_duration + 1), 253402300799) * 1000 + 1000
    END;

-- One more of what is counted in 32 bits.
CREATE FUNCTION one_more(p_count bigint) RETURNS bigint LANGUAGE sql IMMUTABLE
    RETURN least(p_count + 1, 4294967295);
