-- Admission of tasks. The caller has checked them; here an id is admitted once.

-- Admits each task of a batch without two of one id. Verdicts: 0 admitted; 1 it is there already; 2
-- its id is taken in another queue; 3 it went away meanwhile, ask again. `due_in` is of an admitted
-- task. What is the same for all of a batch, NULL or 0, may be NULL in place of an array.
--
-- Tasks may be handed over as they are admitted: written as a claim would leave them, and neither
-- updated nor found by one. `p_takers` says who claims each, `p_taken_leases` for how long
-- (milliseconds). It is done in those of `p_taken_queues` in which nothing else is due, which would
-- be overtaken; `generation` says whether it was.
CREATE FUNCTION enqueue_batch(
    p_ids text[], p_queues text[], p_handlers text[], p_priorities integer[],
    p_due_at bigint[], p_due_in bigint[], p_expires_at bigint[], p_expires_in bigint[],
    p_created_at bigint[], p_envelopes bytea[], p_max_attempts bigint[], p_leases bigint[],
    p_initial_backoffs bigint[], p_retentions_dead bigint[], p_attempt_counts bigint[],
    p_redrive_counts bigint[], p_lease_expired_counts bigint[], p_progress bytea[],
    p_last_attempt_nos bigint[], p_history_bytes integer[], p_histories text[],
    p_takers text[] DEFAULT NULL, p_taken_leases bigint[] DEFAULT NULL,
    p_taken_queues text[] DEFAULT NULL
) RETURNS TABLE (
    n bigint, verdict smallint, status smallint, due_in bigint, generation bigint, now bigint
)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_now bigint := clock_ms();
    v_bare text[] := '{}';
    v_created text[];
    v_seqs bigint[];
    v_generations bigint[];
    v_past text[];
BEGIN
    IF p_taken_queues IS NOT NULL THEN
        v_bare := ARRAY(
            SELECT q FROM unnest(p_taken_queues) AS q
            WHERE NOT EXISTS (SELECT FROM unfinished u WHERE u.queue = q AND u.lane = 0)
                AND NOT EXISTS (
                    SELECT FROM unfinished u WHERE u.queue = q AND u.lane = 1 AND u.at <= v_now)
        );
    END IF;
    -- Spelled out rather than called: a function for each row would take as long as an index.
    WITH created AS (
        INSERT INTO unfinished (
            seq, at, lane, status, generation, claimed_at, claimed_by, lease_expires_at,
            next_attempt_at, created_at, expires_at, attempt_count, redrive_count,
            lease_expired_count, last_attempt_no, max_attempts, lease, initial_backoff,
            retention_dead, rank, records, history_bytes, id, queue, handler_ref, progress,
            envelope
        )
        SELECT
            i.seq,
            CASE WHEN i.is_taken THEN i.lease_end ELSE i.due END,
            CASE WHEN i.is_taken OR i.due > v_now THEN 1 ELSE 0 END,
            i.is_taken::integer,
            CASE WHEN i.is_taken THEN nextval('claims') ELSE 0 END,
            CASE WHEN i.is_taken THEN v_now END,
            CASE WHEN i.is_taken THEN i.taker END,
            CASE WHEN i.is_taken THEN i.lease_end END,
            i.due, coalesce(i.created_at, v_now),
            coalesce(i.expires_at, CASE
                WHEN i.expires_in IS NOT NULL THEN least(v_now + i.expires_in, 253402300799999)
            END),
            coalesce(i.attempt_count, 0), coalesce(i.redrive_count, 0),
            coalesce(i.lease_expired_count, 0), coalesce(i.last_attempt_no, 0),
            i.max_attempts, i.lease, i.initial_backoff, i.retention_dead,
            ~coalesce(i.priority, 0), coalesce(json_array_length(i.history::json), 0),
            coalesce(i.history_bytes, 0), i.id, i.queue, i.handler_ref, i.progress,
            CASE WHEN octet_length(i.envelope) <= 1024 THEN i.envelope END
        FROM (
            -- Numbered in the batch's order.
            SELECT nextval('admissions') AS seq, i.*,
                coalesce(i.due_at, least(v_now + coalesce(i.due_in, 0), 253402300799999)) AS due,
                least(v_now + i.taken_lease, 253402300799999) AS lease_end,
                i.taken_lease IS NOT NULL AND i.queue = ANY (v_bare)
                    AND coalesce(i.due_at, v_now + coalesce(i.due_in, 0)) <= v_now AS is_taken
            FROM unnest(
                p_ids, p_queues, p_handlers, p_priorities, p_due_at, p_due_in, p_expires_at,
                p_expires_in, p_created_at, p_envelopes, p_max_attempts, p_leases,
                p_initial_backoffs, p_retentions_dead, p_attempt_counts, p_redrive_counts,
                p_lease_expired_counts, p_progress, p_last_attempt_nos, p_history_bytes,
                p_histories, p_takers, p_taken_leases
            ) AS i (
                id, queue, handler_ref, priority, due_at, due_in, expires_at,
                expires_in, created_at, envelope, max_attempts, lease,
                initial_backoff, retention_dead, attempt_count, redrive_count,
                lease_expired_count, progress, last_attempt_no, history_bytes,
                history, taker, taken_lease
            )
        ) AS i
        -- In one order for all, so that two batches with the same ids wait for each other but not
        -- in a circle.
        ORDER BY i.id
        ON CONFLICT (id) DO NOTHING
        RETURNING seq, id, generation
    )
    SELECT array_agg(id), array_agg(seq), array_agg(generation)
    INTO v_created, v_seqs, v_generations FROM created;

    -- An id whose task has ended is taken, too. Whoever ends a task removes it from `unfinished` in
    -- the transaction that writes it here: this insertion has waited for that, and this statement
    -- sees what it wrote.
    SELECT array_agg(id) INTO v_past FROM finished WHERE id = ANY (v_created);
    -- In a transaction that sees all as it was when it began, only the index tells, by an error.
    IF current_setting('transaction_isolation') IN ('repeatable read', 'serializable') THEN
        INSERT INTO finished (
            seq, generation, created_at, finished_at, finish_seq, attempt_count, redrive_count,
            lease_expired_count, last_attempt_no, rank, records, folds, history_bytes, status,
            ending, plain_success, id, queue, handler_ref
        )
        SELECT 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, false, c, '', ''
        FROM unnest(v_created) AS c
        ON CONFLICT (id) DO NOTHING;
        DELETE FROM finished WHERE id = ANY (v_created) AND seq = 0;
    END IF;
    IF v_past IS NOT NULL THEN
        DELETE FROM unfinished WHERE id = ANY (v_past);
        v_created := ARRAY(SELECT c FROM unnest(v_created) AS c WHERE c <> ALL (v_past));
    END IF;

    IF EXISTS (SELECT FROM unnest(p_envelopes) AS e WHERE octet_length(e) > 1024) THEN
        INSERT INTO bodies
        SELECT u.seq, i.envelope FROM unnest(p_ids, p_envelopes) AS i (id, envelope)
        LEFT JOIN unfinished u ON u.id = i.id
        WHERE octet_length(i.envelope) > 1024 AND i.id = ANY (v_created);
    END IF;
    -- Histories that were carried over are rare.
    IF p_histories IS NOT NULL THEN
        INSERT INTO attempts
        SELECT u.seq, r.ordinal - 1, (r.it ->> 0)::bigint, (r.it ->> 1)::bigint,
            (r.it ->> 2)::bigint, (r.it ->> 3)::smallint, r.it ->> 4, r.it ->> 5, r.it ->> 6,
            r.it ->> 7, r.it ->> 8, decode(r.it ->> 9, 'hex'), (r.it ->> 10)::bigint
        FROM unnest(p_ids, p_histories) AS i (id, history)
        JOIN unfinished u ON u.id = i.id
        CROSS JOIN LATERAL json_array_elements(i.history::json) WITH ORDINALITY AS r (it, ordinal)
        WHERE i.history IS NOT NULL AND i.id = ANY (v_created);
    END IF;

    IF cardinality(v_created) = cardinality(p_ids) THEN
        IF cardinality(v_bare) > 0 THEN
            -- In the batch's order.
            SELECT array_agg(g.generation ORDER BY g.seq) INTO v_generations
            FROM unnest(v_seqs, v_generations) AS g (seq, generation);
        ELSE
            v_generations := NULL;
        END IF;
        RETURN QUERY
        SELECT i.n, 0::smallint, 0::smallint,
            greatest(coalesce(i.due_at, v_now + coalesce(i.due_in, 0)) - v_now, 0),
            nullif(i.generation, 0), v_now
        FROM unnest(p_ids, p_due_at, p_due_in, v_generations) WITH ORDINALITY
            AS i (id, due_at, due_in, generation, n);
        RETURN;
    END IF;
    RETURN QUERY
    SELECT i.n,
        CASE
            WHEN i.id = ANY (v_created) THEN 0
            WHEN u.id IS NULL AND f.id IS NULL THEN 3
            WHEN coalesce(u.queue, f.queue) = i.queue THEN 1
            ELSE 2
        END::smallint,
        CASE WHEN i.id = ANY (v_created) THEN 0 ELSE coalesce(u.status, f.status, 0) END::smallint,
        greatest(coalesce(i.due_at, v_now + coalesce(i.due_in, 0)) - v_now, 0),
        CASE WHEN i.id = ANY (v_created) THEN nullif(u.generation, 0) END, v_now
    FROM unnest(p_ids, p_queues, p_due_at, p_due_in) WITH ORDINALITY
        AS i (id, queue, due_at, due_in, n)
    LEFT JOIN unfinished u ON u.id = i.id
    LEFT JOIN finished f ON f.id = i.id;
END;
$$;
