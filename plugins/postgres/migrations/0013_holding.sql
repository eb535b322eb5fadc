-- What a holder does with its claim: keep it or end it. And a cancellation, which ends it for it.
-- Every function locks its rows first, in the order of their ids, and reads the clock then: nobody
-- waits in a circle, and what was waited for is judged by the time when it was had.
-- A task is found by its id alone. Its status in the condition would let a plan look among the
-- leased ones, and its token says as much.

-- What becomes of a claim's call. Verdicts: 0 it stands; 1 there is no such task (its generation is
-- NULL then); 2 the claim is stale, 3 since the task was cancelled, 4 since it expired; 5 the same
-- call was made before. `p_call` is 0 for a call that nothing repeats.
CREATE FUNCTION judge(
    p_of_task bigint, p_status smallint, p_ending smallint, p_lease_end bigint,
    p_generation bigint, p_call smallint, p_strict boolean, p_now bigint
) RETURNS smallint LANGUAGE sql IMMUTABLE
    RETURN CASE
        WHEN p_of_task IS NULL THEN 1
        WHEN p_generation IS DISTINCT FROM p_of_task OR p_generation = 0 THEN 2
        WHEN p_status = 1 AND p_ending = 0 THEN
            CASE WHEN p_strict AND p_lease_end <= p_now THEN 2 ELSE 0 END
        WHEN p_ending = 1 THEN 3
        WHEN p_ending = 2 THEN 4
        WHEN p_call > 0 AND p_ending / 8 = p_call THEN 5
        ELSE 2
    END::smallint;

-- Ends the claims of a batch without two of one task. Kinds: 0 succeed, 1 retry, 2 die, 3 give back,
-- 4 succeed and be removed. A generation is NULL where a token is not of this store. `p_plain`: the
-- attempt has nothing to tell but that it happened. What is NULL for all of a batch may be NULL in
-- place of an array; so may be `p_stricts`, if none is.
CREATE FUNCTION resolve_batch(
    p_ids text[], p_generations bigint[], p_calls smallint[], p_kinds smallint[],
    p_stricts boolean[], p_plain boolean[], p_due_at bigint[], p_due_in bigint[],
    p_results bytea[], p_types text[], p_messages text[], p_details text[], p_stacks text[],
    p_extras bytea[]
) RETURNS TABLE (n bigint, verdict smallint, status smallint, next_attempt_at bigint,
    queue text, due_in bigint)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_now bigint;
    v_gone bigint[];
    v_large bigint[];
    v_recorded bigint[];
BEGIN
    IF p_stricts IS NULL AND 4 = ALL (p_kinds) THEN
        -- What is to be removed asks for no clock, and is found by its token alone.
        WITH gone AS (
            DELETE FROM unfinished u
            USING (
                SELECT i.* FROM unnest(p_ids, p_generations) WITH ORDINALITY
                    AS i (id, generation, n)
                ORDER BY i.id
            ) AS i
            WHERE u.id = i.id AND u.generation = i.generation AND u.status = 1
            RETURNING i.n, CASE WHEN u.envelope IS NULL THEN u.seq END AS large,
                CASE WHEN u.records > 0 THEN u.seq END AS recorded
        )
        SELECT array_agg(g.n), array_agg(g.large) FILTER (WHERE g.large IS NOT NULL),
            array_agg(g.recorded) FILTER (WHERE g.recorded IS NOT NULL)
        INTO v_gone, v_large, v_recorded FROM gone g;
        IF v_large IS NOT NULL THEN
            DELETE FROM bodies WHERE task = ANY (v_large);
        END IF;
        IF v_recorded IS NOT NULL THEN
            DELETE FROM attempts WHERE task = ANY (v_recorded);
        END IF;
        IF cardinality(v_gone) = cardinality(p_ids) THEN
            RETURN QUERY SELECT i, 0::smallint, 2::smallint, NULL::bigint, NULL::text, NULL::bigint
                FROM generate_series(1, cardinality(p_ids)::bigint) AS i;
            RETURN;
        END IF;
        -- What is left is refused or was done before, and stays so: a claim that is over does not
        -- come back. To lock it now, behind what was removed, would be out of order.
    ELSE
        PERFORM FROM unfinished WHERE id = ANY (p_ids) ORDER BY id FOR UPDATE;
    END IF;
    v_now := clock_ms();
    RETURN QUERY
    WITH item AS MATERIALIZED (
        SELECT i.*, coalesce(u.seq, f.seq) AS seq, coalesce(u.queue, f.queue) AS queue,
            coalesce(u.ending, f.ending) AS ending,
            coalesce(u.next_attempt_at, f.next_attempt_at) AS next_attempt_at,
            u.records, u.claimed_at, u.claimed_by, u.last_attempt_no,
            CASE WHEN i.n = ANY (v_gone) THEN 0::smallint ELSE judge(
                coalesce(u.generation, f.generation), coalesce(u.status, f.status),
                coalesce(u.ending, f.ending), u.lease_expires_at,
                i.generation, i.call, coalesce(i.strict, false), v_now
            ) END AS verdict,
            CASE i.kind WHEN 0 THEN 2 WHEN 1 THEN 0 WHEN 2 THEN 3 WHEN 3 THEN 0 ELSE 2 END
                ::smallint AS status,
            CASE
                WHEN i.kind = 3 THEN greatest(moment(i.due_at, i.due_in, v_now), v_now)
                WHEN i.kind = 1 THEN moment(i.due_at, i.due_in, v_now)
            END AS due,
            weight(u.claimed_by, i.type, i.message, i.detail, i.stack, i.extra) AS bytes
        FROM unnest(
            p_ids, p_generations, p_calls, p_kinds, p_stricts, p_plain, p_due_at, p_due_in,
            p_results, p_types, p_messages, p_details, p_stacks, p_extras
        ) WITH ORDINALITY AS i (
            id, generation, call, kind, strict, plain, due_at, due_in,
            result, type, message, detail, stack, extra, n
        )
        LEFT JOIN unfinished u ON u.id = i.id
        LEFT JOIN finished f ON f.id = i.id AND u.id IS NULL
    ),
    taken AS (
        DELETE FROM unfinished u USING item i
        WHERE i.verdict = 0 AND i.kind IN (0, 2, 4) AND u.id = i.id
            AND u.generation = i.generation
        RETURNING u.*, i.kind, i.call, i.plain, i.result, i.type, i.bytes, i.status AS end_status
    ),
    removed_attempts AS (
        DELETE FROM attempts a USING taken t
        WHERE t.kind = 4 AND t.records > 0 AND a.task = t.seq
    ),
    removed_bodies AS (
        DELETE FROM bodies b USING taken t
        WHERE t.kind = 4 AND t.envelope IS NULL AND b.task = t.seq
    ),
    kept AS (
        INSERT INTO finished
        SELECT t.seq, t.generation, t.created_at, NULL,
            CASE WHEN t.kind = 0 AND t.plain THEN t.claimed_at END, t.expires_at, v_now,
            nextval('ends'),
            CASE WHEN t.kind = 2 THEN later(v_now, millis(t.retention_dead)) END,
            one_more(t.attempt_count), t.redrive_count, t.lease_expired_count,
            one_more(t.last_attempt_no), t.max_attempts, t.lease, t.initial_backoff,
            t.retention_dead, t.rank,
            t.records + (t.kind = 2 OR NOT t.plain)::integer, t.folds, t.history_bytes + t.bytes,
            t.end_status, 8 * t.call + t.end_status, t.kind = 0 AND t.plain, t.id, t.queue,
            t.handler_ref, CASE WHEN t.kind = 0 AND t.plain THEN t.claimed_by END,
            CASE WHEN t.kind = 2 THEN t.type END, t.progress, t.result, t.envelope
        FROM taken t WHERE t.kind < 4
    ),
    recorded AS (
        INSERT INTO attempts
        SELECT i.seq, i.records, one_more(i.last_attempt_no), i.claimed_at, v_now, i.kind + 1,
            i.claimed_by, i.type, i.message, i.detail, i.stack, coalesce(i.extra, ''), 0
        FROM item i WHERE i.verdict = 0 AND (i.kind IN (1, 2) OR i.kind = 0 AND NOT i.plain)
    ),
    back AS (
        UPDATE unfinished u SET
            status = 0,
            ending = 8 * i.call,
            lane = CASE WHEN i.due <= v_now THEN 0 ELSE 1 END,
            at = i.due,
            next_attempt_at = i.due,
            lease_expires_at = NULL,
            claimed_at = NULL,
            claimed_by = NULL,
            attempt_count = CASE
                WHEN i.kind = 1 THEN one_more(u.attempt_count) ELSE u.attempt_count END,
            last_attempt_no = CASE
                WHEN i.kind = 1 THEN one_more(u.last_attempt_no) ELSE u.last_attempt_no END,
            records = u.records + (i.kind = 1)::integer,
            history_bytes = u.history_bytes + CASE WHEN i.kind = 1 THEN i.bytes ELSE 0 END
        FROM item i
        WHERE i.verdict = 0 AND i.kind IN (1, 3) AND u.id = i.id AND u.generation = i.generation
    )
    SELECT i.n, i.verdict,
        CASE i.verdict WHEN 0 THEN i.status WHEN 5 THEN (i.ending % 8)::smallint END,
        CASE i.verdict WHEN 0 THEN i.due WHEN 5 THEN i.next_attempt_at END,
        i.queue,
        CASE WHEN i.verdict = 0 THEN until(i.due, v_now) END
    FROM item i;
    IF false = ANY (p_plain) THEN
        PERFORM bound_histories(p_ids);
    END IF;
END;
$$;

-- Keeps the claims of a batch without two of one task. Durations are milliseconds.
CREATE FUNCTION extend_batch(
    p_ids text[], p_generations bigint[], p_leases bigint[], p_held_max bigint[],
    p_progress bytea[], p_stricts boolean[]
) RETURNS TABLE (n bigint, verdict smallint, lease_expires_at bigint, queue text,
    remaining bigint)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_now bigint;
BEGIN
    PERFORM FROM unfinished WHERE id = ANY (p_ids) ORDER BY id FOR UPDATE;
    v_now := clock_ms();
    RETURN QUERY
    WITH item AS MATERIALIZED (
        SELECT i.*, u.queue,
            judge(
                coalesce(u.generation, f.generation), coalesce(u.status, f.status),
                coalesce(u.ending, f.ending), u.lease_expires_at,
                i.generation, 0::smallint, i.strict, v_now
            ) AS verdict,
            -- A bound that is not there is NULL, which least() passes over.
            least(later(v_now, i.lease), later(u.claimed_at, i.held_max)) AS lease_end
        FROM unnest(p_ids, p_generations, p_leases, p_held_max, p_progress, p_stricts)
            WITH ORDINALITY AS i (id, generation, lease, held_max, progress, strict, n)
        LEFT JOIN unfinished u ON u.id = i.id
        LEFT JOIN finished f ON f.id = i.id AND u.id IS NULL
    ),
    kept AS (
        UPDATE unfinished u SET
            lease_expires_at = i.lease_end,
            -- It moves only when it has to: else this update touches no index.
            at = CASE WHEN u.lane = 1 THEN least(u.at, i.lease_end) ELSE i.lease_end END,
            lane = 1,
            progress = CASE
                WHEN i.progress IS NULL THEN u.progress
                WHEN octet_length(i.progress) > 0 THEN i.progress END
        FROM item i
        WHERE i.verdict = 0 AND u.id = i.id AND u.generation = i.generation
    )
    SELECT i.n, i.verdict, i.lease_end, i.queue, until(i.lease_end, v_now) FROM item i;
END;
$$;

-- Ends tasks for good, whoever holds them. Verdicts: 0 done; 1 there is no such task; 2 it had ended
-- before, and `status` says how.
CREATE FUNCTION cancel_batch(p_ids text[])
RETURNS TABLE (n bigint, verdict smallint, status smallint)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_now bigint;
    v_held text[];
    v_past smallint[];
    v_came boolean;
BEGIN
    LOOP
        v_held := ARRAY(SELECT id FROM unfinished WHERE id = ANY (p_ids) ORDER BY id FOR UPDATE);
        -- A dead letter may have been redriven since: what is not held might be gone before it is
        -- ended, and is not told to be.
        SELECT array_agg(f.status ORDER BY i.n),
            bool_or(u.id IS NOT NULL AND i.id <> ALL (v_held))
        INTO v_past, v_came
        FROM unnest(p_ids) WITH ORDINALITY AS i (id, n)
        LEFT JOIN unfinished u ON u.id = i.id
        LEFT JOIN finished f ON f.id = i.id AND u.id IS NULL;
        EXIT WHEN v_came IS NOT true;
    END LOOP;
    v_now := clock_ms();
    RETURN QUERY
    WITH ended AS (
        DELETE FROM unfinished WHERE id = ANY (v_held) RETURNING *
    ),
    recorded AS (
        INSERT INTO attempts
        SELECT e.seq, e.records, one_more(e.last_attempt_no), e.claimed_at, v_now, 5, e.claimed_by,
            NULL, NULL, NULL, NULL, '', 0
        FROM ended e WHERE e.status = 1
    ),
    kept AS (
        INSERT INTO finished
        SELECT e.seq, e.generation, e.created_at,
            CASE WHEN e.status = 0 THEN e.next_attempt_at END, NULL, e.expires_at, v_now,
            nextval('ends'), NULL,
            CASE WHEN e.status = 1 THEN one_more(e.attempt_count) ELSE e.attempt_count END,
            e.redrive_count, e.lease_expired_count,
            CASE WHEN e.status = 1 THEN one_more(e.last_attempt_no) ELSE e.last_attempt_no END,
            e.max_attempts, e.lease, e.initial_backoff, e.retention_dead, e.rank,
            e.records + (e.status = 1)::integer, e.folds,
            e.history_bytes + CASE WHEN e.status = 1 THEN octet_length(e.claimed_by) ELSE 0 END,
            4, CASE WHEN e.status = 1 THEN 1 ELSE e.ending END, false, e.id, e.queue,
            e.handler_ref, NULL, NULL, e.progress, NULL, e.envelope
        FROM ended e
    )
    SELECT i.n,
        CASE WHEN i.id = ANY (v_held) THEN 0 WHEN v_past[i.n] IS NOT NULL THEN 2 ELSE 1 END
            ::smallint,
        coalesce(v_past[i.n], 4::smallint)
    FROM unnest(p_ids) WITH ORDINALITY AS i (id, n);
    PERFORM bound_histories(v_held);
END;
$$;
