-- Admission of tasks. The caller has checked them; here an id is admitted once.

-- Admits each task of a batch without two of one id. Verdicts: 0 admitted; 1 it is there already; 2
-- its id is taken in another queue; 3 it went away meanwhile, ask again. `due_in` is of an admitted
-- task.
CREATE FUNCTION enqueue_batch(
    p_ids text[], p_queues text[], p_handlers text[], p_priorities integer[],
    p_due_at bigint[], p_due_in bigint[], p_expires_at bigint[], p_expires_in bigint[],
    p_created_at bigint[], p_envelopes bytea[], p_max_attempts bigint[], p_leases bigint[],
    p_initial_backoffs bigint[], p_retentions_dead bigint[], p_attempt_counts bigint[],
    p_redrive_counts bigint[], p_lease_expired_counts bigint[], p_progress bytea[],
    p_last_attempt_nos bigint[], p_history_bytes integer[], p_histories text[]
) RETURNS TABLE (n bigint, verdict smallint, status smallint, due_in bigint)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_now bigint := clock_ms();
    v_created text[];
BEGIN
    WITH item AS MATERIALIZED (
        -- Numbered in the batch's order.
        SELECT nextval('admissions') AS seq, i.*
        FROM unnest(
            p_ids, p_queues, p_handlers, p_priorities, p_due_at, p_due_in, p_expires_at,
            p_expires_in, p_created_at, p_envelopes, p_max_attempts, p_leases,
            p_initial_backoffs, p_retentions_dead, p_attempt_counts, p_redrive_counts,
            p_lease_expired_counts, p_progress, p_last_attempt_nos, p_history_bytes, p_histories
        ) AS i (
            id, queue, handler_ref, priority, due_at, due_in, expires_at,
            expires_in, created_at, envelope, max_attempts, lease,
            initial_backoff, retention_dead, attempt_count, redrive_count,
            lease_expired_count, progress, last_attempt_no, history_bytes, history
        )
    ),
    created AS (
        INSERT INTO tasks (
            seq, at, lane, status, created_at, next_attempt_at, expires_at, attempt_count,
            redrive_count, lease_expired_count, last_attempt_no, max_attempts, lease,
            initial_backoff, retention_dead, priority, records, history_bytes, id, queue,
            handler_ref, progress, envelope
        )
        SELECT
            i.seq, moment(i.due_at, i.due_in, v_now),
            (moment(i.due_at, i.due_in, v_now) > v_now)::integer, 0,
            coalesce(i.created_at, v_now), moment(i.due_at, i.due_in, v_now),
            moment(i.expires_at, i.expires_in, v_now), i.attempt_count, i.redrive_count,
            i.lease_expired_count, i.last_attempt_no, i.max_attempts, i.lease,
            i.initial_backoff, i.retention_dead, i.priority,
            coalesce(json_array_length(i.history::json), 0), i.history_bytes, i.id, i.queue,
            i.handler_ref, i.progress, i.envelope
        FROM item i
        -- In one order for all, so that two batches with the same ids wait for each other but not
        -- in a circle.
        ORDER BY i.id
        ON CONFLICT (id) DO NOTHING
        RETURNING id
    )
    SELECT array_agg(id) INTO v_created FROM created;

    -- Histories that were carried over are rare.
    IF EXISTS (SELECT FROM unnest(p_histories) AS h (history) WHERE history IS NOT NULL) THEN
        INSERT INTO attempts
        SELECT t.seq, r.ordinal - 1, (r.it ->> 0)::bigint, (r.it ->> 1)::bigint,
            (r.it ->> 2)::bigint, (r.it ->> 3)::smallint, r.it ->> 4, r.it ->> 5, r.it ->> 6,
            r.it ->> 7, r.it ->> 8, decode(r.it ->> 9, 'hex'), (r.it ->> 10)::bigint
        FROM unnest(p_ids, p_histories) AS i (id, history)
        JOIN tasks t ON t.id = i.id
        CROSS JOIN LATERAL json_array_elements(i.history::json) WITH ORDINALITY AS r (it, ordinal)
        WHERE i.history IS NOT NULL AND i.id = ANY (v_created);
    END IF;

    IF cardinality(v_created) = cardinality(p_ids) THEN
        RETURN QUERY
        SELECT i.n, 0::smallint, 0::smallint,
            until(moment(i.due_at, i.due_in, v_now), v_now)
        FROM unnest(p_due_at, p_due_in) WITH ORDINALITY AS i (due_at, due_in, n);
        RETURN;
    END IF;
    RETURN QUERY
    SELECT i.n,
        CASE
            WHEN i.id = ANY (v_created) THEN 0
            WHEN t.id IS NULL THEN 3
            WHEN t.queue = i.queue THEN 1
            ELSE 2
        END::smallint,
        coalesce(t.status, 0::smallint),
        until(moment(i.due_at, i.due_in, v_now), v_now)
    FROM unnest(p_ids, p_queues, p_due_at, p_due_in) WITH ORDINALITY
        AS i (id, queue, due_at, due_in, n)
    LEFT JOIN tasks t ON t.id = i.id;
END;
$$;
