-- Tasks, their histories, their queues, and the one row that is the store's clock and counters.
-- Instants are milliseconds since the Unix epoch.

-- One row. Every write transaction reads it first and, if it changed anything, writes it last.
CREATE TABLE state (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    -- Random; part of every claim token, so that a token of another store is refused.
    store_id BLOB NOT NULL,
    -- The storage's clock at the last write, and the host's clock then. It never runs backwards.
    now INTEGER NOT NULL,
    host_now INTEGER NOT NULL,
    -- Counters that only grow: admissions, claims, ends.
    seq INTEGER NOT NULL,
    generation INTEGER NOT NULL,
    finish_seq INTEGER NOT NULL
) STRICT;

INSERT INTO state VALUES (1, randomblob(8), 0, 0, 0, 0, 0);

-- A queue exists while it holds tasks or has a stored configuration.
CREATE TABLE queues (
    queue INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    config TEXT,
    config_updated_at INTEGER,
    -- How many tasks it holds, by status: kept in step by the transactions that move tasks.
    pending INTEGER NOT NULL DEFAULT 0,
    in_flight INTEGER NOT NULL DEFAULT 0,
    succeeded INTEGER NOT NULL DEFAULT 0,
    dead INTEGER NOT NULL DEFAULT 0,
    cancelled INTEGER NOT NULL DEFAULT 0
) STRICT;

-- Queues to forget.
CREATE INDEX queues_empty ON queues (queue)
    WHERE config IS NULL AND pending + in_flight + succeeded + dead + cancelled = 0;

-- The columns stand in the order in which they are read: short and often first, the envelope last.
CREATE TABLE tasks (
    -- queue * 2^43 + seq: the table is clustered by queue, and by admission within it.
    task INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    queue INTEGER NOT NULL REFERENCES queues,
    -- Where the task stands in `tasks_place`. Up to 2^31: due, and the lane is the negated
    -- priority. 2^31 + 1: delayed. + 2: leased. + 3: succeeded. + 4: dead. + 5: cancelled.
    lane INTEGER NOT NULL,
    -- Its order within the lane: the due time (of a leased task the lease's end), or the number of
    -- its end.
    at INTEGER NOT NULL,
    -- 0 pending, 1 in flight, 2 succeeded, 3 dead, 4 cancelled.
    status INTEGER NOT NULL,
    -- Of the last claim; 0 before the first.
    generation INTEGER NOT NULL DEFAULT 0,
    -- How the last claim ended: what a repeated or late call is answered by.
    ending INTEGER NOT NULL DEFAULT 0,
    attempt_count INTEGER NOT NULL DEFAULT 0,
    redrive_count INTEGER NOT NULL DEFAULT 0,
    lease_expired_count INTEGER NOT NULL DEFAULT 0,
    last_attempt_no INTEGER NOT NULL DEFAULT 0,
    next_attempt_at INTEGER,
    lease_expires_at INTEGER,
    claimed_at INTEGER,
    claimed_by TEXT,
    finished_at INTEGER,
    -- When a dead letter with a retention of its own is removed.
    purge_at INTEGER,
    -- Of the attempt that a dead letter died of.
    final_error_type TEXT,
    -- Where the history is. 0: in `only_attempt`, if there is any. 1: in `attempts`. 2: it is one
    -- success with nothing to tell, of the claim that claimed_at and claimed_by still name.
    history INTEGER NOT NULL DEFAULT 0,
    only_attempt BLOB,
    expires_at INTEGER,
    created_at INTEGER NOT NULL,
    priority INTEGER NOT NULL,
    handler_ref TEXT NOT NULL,
    -- Overrides. Durations are nanoseconds; below zero, whole seconds, for what is longer.
    max_attempts INTEGER,
    lease INTEGER,
    initial_backoff INTEGER,
    retention_dead INTEGER,
    progress BLOB,
    result BLOB,
    -- NULL if it is large: then it is in `bodies`, so that a claim does not rewrite it.
    envelope BLOB
) STRICT;

-- Every task stands in one place of this index.
CREATE INDEX tasks_place ON tasks (queue, lane, at);
-- Unfinished tasks that expire.
CREATE INDEX tasks_expiry ON tasks (queue, expires_at) WHERE expires_at IS NOT NULL AND status <= 1;
-- Dead letters with a retention of their own, and those that the queue's retention removes.
CREATE INDEX tasks_purge ON tasks (queue, purge_at) WHERE purge_at IS NOT NULL;
CREATE INDEX tasks_dead ON tasks (queue, at) WHERE status = 3 AND purge_at IS NULL;

-- What few tasks have, in tables of its own. Nothing cascades to them: it would be looked for with each of the many
-- tasks that have none. The row says whether there is any, and who removes the row removes it.

-- Large envelopes.
CREATE TABLE bodies (
    task INTEGER PRIMARY KEY,
    envelope BLOB NOT NULL
) STRICT;

-- Histories of more than one attempt, or of a large one: their bounds, and their records.
CREATE TABLE histories (
    task INTEGER PRIMARY KEY,
    -- The ordinal of the next record; the first is 0.
    next INTEGER NOT NULL,
    -- How many records were folded away.
    folds INTEGER NOT NULL,
    -- The weight of all text.
    bytes INTEGER NOT NULL,
    -- Below these ordinals, records have lost their stack, detail, message, extra bytes.
    shed_stacks INTEGER NOT NULL,
    shed_details INTEGER NOT NULL,
    shed_messages INTEGER NOT NULL,
    shed_extras INTEGER NOT NULL
) STRICT;

CREATE TABLE attempts (
    task INTEGER NOT NULL,
    ordinal INTEGER NOT NULL,
    record BLOB NOT NULL,
    -- Stack and detail, if any: claims and lists pass over them.
    heavy BLOB,
    PRIMARY KEY (task, ordinal)
) STRICT, WITHOUT ROWID;

CREATE TABLE secrets (
    name TEXT PRIMARY KEY,
    secret BLOB NOT NULL
) STRICT, WITHOUT ROWID;
