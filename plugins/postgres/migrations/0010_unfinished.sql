-- Unfinished tasks and finished ones are kept apart, so that a claim updates a narrow row among few
-- others, and what has ended is in none of its indexes. `tasks`, which others may read, is a view of
-- both from now on.

DROP FUNCTION enqueue_batch, claim_batch, claim_one, next_due_in, promote, resolve_batch,
    extend_batch, cancel_batch, judge, bound_history, bound_histories, select_dead, redrive_step,
    purge_step, expire_some, remove_finished, sweep_step;

-- What waits, and what is claimed. Wide columns come first, so that no bytes are lost to alignment.
CREATE TABLE unfinished (
    -- The number of its admission.
    seq bigint NOT NULL,
    -- Its order in its lane. Ready: when it became due. Waiting: when to look at it, never later
    -- than its due time or its lease's end; a heartbeat does not move it, so that it changes no
    -- index.
    at bigint NOT NULL,
    -- Of the last claim; 0 before the first.
    generation bigint NOT NULL DEFAULT 0,
    created_at bigint NOT NULL,
    -- When it is due; of a claimed task, when it was.
    next_attempt_at bigint,
    lease_expires_at bigint,
    claimed_at bigint,
    expires_at bigint,
    attempt_count bigint NOT NULL,
    redrive_count bigint NOT NULL,
    lease_expired_count bigint NOT NULL,
    last_attempt_no bigint NOT NULL,
    -- Overrides. Durations are nanoseconds; below zero, whole seconds, for what is longer.
    max_attempts bigint,
    lease bigint,
    initial_backoff bigint,
    retention_dead bigint,
    -- The complement of the priority, so that a place among what is due is one comparison of rows.
    rank integer NOT NULL,
    -- Its history in `attempts`: the next ordinal, how many records were folded away, its weight.
    records integer NOT NULL DEFAULT 0,
    folds integer NOT NULL DEFAULT 0,
    history_bytes integer NOT NULL DEFAULT 0,
    -- 0 ready: due, or its lease has lapsed. 1 waiting: delayed, or leased.
    lane smallint NOT NULL,
    -- 0 pending, 1 in flight.
    status smallint NOT NULL,
    -- How the last claim ended: what a repeated or late call is answered by. 0: it did not. 1: by a
    -- cancellation. 2: by its expiry. Else 8 * call + status (calls: 1 complete, 2 reschedule, 3
    -- dead-letter, 4 fail, 5 release).
    ending smallint NOT NULL DEFAULT 0,
    id text COLLATE "C" NOT NULL,
    queue text COLLATE "C" NOT NULL,
    handler_ref text COLLATE "C" NOT NULL,
    claimed_by text COLLATE "C",
    progress bytea,
    -- NULL if it is in `bodies`.
    envelope bytea
) WITH (
    -- Room for heartbeats beside the row they replace.
    fillfactor = 85,
    -- A queue's rows die young, and dead ones at the head of an index slow every claim.
    autovacuum_vacuum_scale_factor = 0.01,
    autovacuum_vacuum_threshold = 2000,
    autovacuum_vacuum_cost_delay = 0,
    autovacuum_analyze_scale_factor = 0.05
);

-- What has ended: dead letters, and what is kept for a while.
CREATE TABLE finished (
    seq bigint NOT NULL,
    generation bigint NOT NULL,
    created_at bigint NOT NULL,
    -- A repeated call is answered by it.
    next_attempt_at bigint,
    -- Of a plain success alone.
    claimed_at bigint,
    expires_at bigint,
    finished_at bigint NOT NULL,
    -- The number of its end.
    finish_seq bigint NOT NULL,
    -- When a dead letter with a retention of its own is removed.
    purge_at bigint,
    attempt_count bigint NOT NULL,
    redrive_count bigint NOT NULL,
    lease_expired_count bigint NOT NULL,
    last_attempt_no bigint NOT NULL,
    max_attempts bigint,
    lease bigint,
    initial_backoff bigint,
    retention_dead bigint,
    rank integer NOT NULL,
    records integer NOT NULL,
    folds integer NOT NULL,
    history_bytes integer NOT NULL,
    -- 2 succeeded, 3 dead, 4 cancelled.
    status smallint NOT NULL,
    ending smallint NOT NULL,
    -- The last record is not in `attempts`: it is a success with nothing to tell, of the claim that
    -- claimed_at and claimed_by still name.
    plain_success boolean NOT NULL,
    id text COLLATE "C" NOT NULL,
    queue text COLLATE "C" NOT NULL,
    handler_ref text COLLATE "C" NOT NULL,
    claimed_by text COLLATE "C",
    -- Of the attempt that a dead letter died of.
    final_error_type text COLLATE "C",
    progress bytea,
    result bytea,
    envelope bytea
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);

-- Envelopes of more than 1,024 bytes: neither a claim nor an end writes them again.
CREATE TABLE bodies (
    task bigint PRIMARY KEY,
    body bytea NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);

INSERT INTO bodies SELECT seq, envelope FROM tasks WHERE octet_length(envelope) > 1024;
INSERT INTO unfinished
SELECT seq, at, generation, created_at, CASE WHEN status = 0 THEN next_attempt_at ELSE at END,
    lease_expires_at, claimed_at, expires_at, attempt_count, redrive_count, lease_expired_count,
    last_attempt_no, max_attempts, lease, initial_backoff, retention_dead, ~priority, records,
    folds, history_bytes, lane, status, ending, id, queue, handler_ref, claimed_by, progress,
    CASE WHEN octet_length(envelope) <= 1024 THEN envelope END
FROM tasks WHERE lane < 2 ORDER BY seq;
INSERT INTO finished
SELECT seq, generation, created_at, next_attempt_at, claimed_at, expires_at, finished_at,
    finish_seq, purge_at, attempt_count, redrive_count, lease_expired_count, last_attempt_no,
    max_attempts, lease, initial_backoff, retention_dead, ~priority, records, folds,
    history_bytes, status, ending, plain_success, id, queue, handler_ref, claimed_by,
    final_error_type, progress, result,
    CASE WHEN octet_length(envelope) <= 1024 THEN envelope END
FROM tasks WHERE lane = 2 ORDER BY finish_seq;
DROP TABLE tasks;

-- An id is in one of both: see `enqueue_batch`.
ALTER TABLE unfinished ADD PRIMARY KEY (id) WITH (deduplicate_items = off);
ALTER TABLE finished ADD PRIMARY KEY (id);
-- Lists: a queue's tasks by admission.
CREATE INDEX unfinished_queue ON unfinished (queue, seq) WITH (deduplicate_items = off);
CREATE INDEX finished_queue ON finished (queue, seq);
-- What is due, in the order of claims. What waits for later is not in its way.
CREATE INDEX unfinished_ready ON unfinished (queue, rank, at, seq)
    WITH (deduplicate_items = off) WHERE lane = 0;
CREATE INDEX unfinished_waiting ON unfinished (queue, at) WHERE lane = 1;
CREATE INDEX unfinished_expiry ON unfinished (queue, expires_at) WHERE expires_at IS NOT NULL;
-- What is kept, by its end.
CREATE INDEX finished_ends ON finished (queue, status, finish_seq);
-- Dead letters that the queue's retention removes, and those with a retention of their own.
CREATE INDEX finished_dead ON finished (queue, finish_seq) WHERE status = 3 AND purge_at IS NULL;
CREATE INDEX finished_purge ON finished (queue, purge_at) WHERE purge_at IS NOT NULL;

CREATE VIEW tasks AS
SELECT seq, at, generation, created_at,
    CASE WHEN status = 0 THEN next_attempt_at END AS next_attempt_at,
    lease_expires_at, claimed_at, expires_at, NULL::bigint AS finished_at,
    NULL::bigint AS finish_seq, NULL::bigint AS purge_at, attempt_count, redrive_count,
    lease_expired_count, last_attempt_no, max_attempts, lease, initial_backoff, retention_dead,
    ~rank AS priority, records, folds, history_bytes, lane, status, ending,
    false AS plain_success, id, queue, handler_ref, claimed_by,
    NULL::text COLLATE "C" AS final_error_type, progress, NULL::bytea AS result,
    coalesce(envelope, (SELECT body FROM bodies WHERE task = seq)) AS envelope
FROM unfinished
UNION ALL
SELECT seq, finished_at, generation, created_at, next_attempt_at, NULL, claimed_at, expires_at,
    finished_at, finish_seq, purge_at, attempt_count, redrive_count, lease_expired_count,
    last_attempt_no, max_attempts, lease, initial_backoff, retention_dead, ~rank, records, folds,
    history_bytes, 2::smallint, status, ending, plain_success, id, queue, handler_ref, claimed_by,
    final_error_type, progress, result,
    coalesce(envelope, (SELECT body FROM bodies WHERE task = seq))
FROM finished;

-- The weight of an envelope, wherever it is.
CREATE FUNCTION envelope_bytes(p_envelope bytea, p_task bigint) RETURNS integer LANGUAGE sql STABLE
    RETURN coalesce(
        octet_length(p_envelope), (SELECT octet_length(body) FROM bodies WHERE task = p_task));

-- Brings a history back to its bounds: at most 10,000 records, the middle ones folded into one, and
-- 1 MiB of text, the oldest stacks going first, then details, messages, and what came beside the
-- known fields. The caller holds the task's row.
CREATE FUNCTION bound_history(p_id text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    v_task tasks;
    v_kept attempts;
    v_gone attempts;
    v_excess bigint;
    v_cut bigint;
    v_column text;
BEGIN
    SELECT * INTO v_task FROM tasks WHERE id = p_id;
    WHILE v_task.records - v_task.folds > 10000 LOOP
        -- Nothing below the first half was ever folded away: ordinals are places there.
        SELECT * INTO v_kept FROM attempts WHERE task = v_task.seq AND ordinal = 4999;
        SELECT * INTO v_gone FROM attempts
            WHERE task = v_task.seq AND ordinal >= 5000 ORDER BY ordinal LIMIT 1;
        UPDATE attempts SET
            folded_count = least(
                greatest(v_kept.folded_count, 1) + greatest(v_gone.folded_count, 1), 4294967295),
            finished_at = v_gone.finished_at
            WHERE task = v_task.seq AND ordinal = v_kept.ordinal;
        DELETE FROM attempts WHERE task = v_task.seq AND ordinal = v_gone.ordinal;
        v_task.folds := v_task.folds + 1;
        v_task.history_bytes := v_task.history_bytes - weight(
            v_gone.worker_id, v_gone.error_type, v_gone.message, v_gone.detail, v_gone.stack,
            v_gone.extra);
    END LOOP;
    FOREACH v_column IN ARRAY ARRAY['stack', 'detail', 'message', 'extra'] LOOP
        v_excess := v_task.history_bytes - 1048576;
        EXIT WHEN v_excess <= 0;
        -- The oldest that have any, until enough is gone.
        EXECUTE format(
            'WITH cut AS (
                UPDATE attempts a SET %1$I = '''' FROM (
                    SELECT ordinal, octet_length(%1$I) AS bytes,
                        sum(octet_length(%1$I)) OVER (ORDER BY ordinal) AS so_far
                    FROM attempts WHERE task = $1 AND octet_length(%1$I) > 0
                ) AS heavy
                WHERE a.task = $1 AND a.ordinal = heavy.ordinal
                    AND heavy.so_far - heavy.bytes < $2
                RETURNING heavy.bytes
            )
            SELECT coalesce(sum(bytes), 0) FROM cut', v_column
        ) INTO v_cut USING v_task.seq, v_excess;
        v_task.history_bytes := v_task.history_bytes - v_cut;
    END LOOP;
    UPDATE unfinished SET folds = v_task.folds, history_bytes = v_task.history_bytes
        WHERE id = p_id;
    UPDATE finished SET folds = v_task.folds, history_bytes = v_task.history_bytes
        WHERE id = p_id;
END;
$$;

-- Does so for those of these tasks that need it.
CREATE FUNCTION bound_histories(p_ids text[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    v_id text;
BEGIN
    FOR v_id IN
        SELECT id FROM unfinished
        WHERE id = ANY (p_ids) AND (records - folds > 10000 OR history_bytes > 1048576)
        UNION ALL
        SELECT id FROM finished
        WHERE id = ANY (p_ids) AND (records - folds > 10000 OR history_bytes > 1048576)
    LOOP
        PERFORM bound_history(v_id);
    END LOOP;
END;
$$;
