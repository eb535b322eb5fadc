-- What a holder does with its claim: keep it or end it. And a cancellation, which ends it for it.
-- Every function locks its rows first, in the order of their ids, and reads the clock then: nobody
-- waits in a circle, and what was waited for is judged by the time when it was had.
-- A task is found by its id alone. Its status in the condition would let a plan look among the
-- leased ones, and its token says as much.

-- What becomes of a claim's call. Verdicts: 0 it stands; 1 there is no such task; 2 the claim is
-- stale, 3 since the task was cancelled, 4 since it expired; 5 the same call was made before.
-- `p_call` is 0 for a call that nothing repeats.
CREATE FUNCTION judge(
    p_task tasks, p_generation bigint, p_call smallint, p_strict boolean, p_now bigint
) RETURNS smallint LANGUAGE sql IMMUTABLE
    RETURN CASE
        WHEN (p_task).id IS NULL THEN 1
        WHEN p_generation IS DISTINCT FROM (p_task).generation OR p_generation = 0 THEN 2
        WHEN (p_task).status = 1 AND (p_task).ending = 0 THEN
            CASE WHEN p_strict AND (p_task).lease_expires_at <= p_now THEN 2 ELSE 0 END
        WHEN (p_task).ending = 1 THEN 3
        WHEN (p_task).ending = 2 THEN 4
        WHEN p_call > 0 AND (p_task).ending / 8 = p_call THEN 5
        ELSE 2
    END::smallint;

-- Ends the claims of a batch without two of one task. Kinds: 0 succeed, 1 retry, 2 die, 3 give back,
-- 4 succeed and be removed. A generation is NULL where a token is not of this store. `p_plain`: the
-- attempt has nothing to tell but that it happened.
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
BEGIN
    PERFORM FROM tasks WHERE id = ANY (p_ids) ORDER BY id FOR UPDATE;
    v_now := clock_ms();
    RETURN QUERY
    WITH item AS MATERIALIZED (
        SELECT i.*, t.seq, t.records, t.ending, t.queue, t.claimed_at, t.claimed_by,
            t.last_attempt_no, t.next_attempt_at,
            judge(t, i.generation, i.call, i.strict, v_now) AS verdict,
            CASE i.kind WHEN 0 THEN 2 WHEN 1 THEN 0 WHEN 2 THEN 3 WHEN 3 THEN 0 ELSE 2 END
                ::smallint AS status,
            CASE
                WHEN i.kind = 3 THEN greatest(moment(i.due_at, i.due_in, v_now), v_now)
                WHEN i.kind = 1 THEN moment(i.due_at, i.due_in, v_now)
            END AS due,
            weight(t.claimed_by, i.type, i.message, i.detail, i.stack, i.extra) AS bytes
        FROM unnest(
            p_ids, p_generations, p_calls, p_kinds, p_stricts, p_plain, p_due_at, p_due_in,
            p_results, p_types, p_messages, p_details, p_stacks, p_extras
        ) WITH ORDINALITY AS i (
            id, generation, call, kind, strict, plain, due_at, due_in,
            result, type, message, detail, stack, extra, n
        )
        LEFT JOIN tasks t ON t.id = i.id
    ),
    removed AS (
        DELETE FROM tasks t USING item i WHERE i.verdict = 0 AND i.kind = 4 AND t.id = i.id
        RETURNING t.seq, t.records
    ),
    removed_attempts AS (
        DELETE FROM attempts a USING removed r WHERE r.records > 0 AND a.task = r.seq
    ),
    recorded AS (
        INSERT INTO attempts
        SELECT i.seq, i.records, one_more(i.last_attempt_no), i.claimed_at, v_now, i.kind + 1,
            i.claimed_by, i.type, i.message, i.detail, i.stack, coalesce(i.extra, ''), 0
        FROM item i WHERE i.verdict = 0 AND (i.kind IN (1, 2) OR i.kind = 0 AND NOT i.plain)
    ),
    ended AS (
        UPDATE tasks t SET
            status = i.status,
            ending = 8 * i.call + i.status,
            lane = CASE WHEN i.status > 0 THEN 2 WHEN i.due <= v_now THEN 0 ELSE 1 END,
            at = coalesce(i.due, v_now),
            next_attempt_at = i.due,
            lease_expires_at = NULL,
            claimed_at = CASE WHEN i.kind = 0 AND i.plain THEN t.claimed_at END,
            claimed_by = CASE WHEN i.kind = 0 AND i.plain THEN t.claimed_by END,
            plain_success = i.kind = 0 AND i.plain,
            attempt_count = CASE
                WHEN i.kind < 3 THEN one_more(t.attempt_count) ELSE t.attempt_count END,
            last_attempt_no = CASE
                WHEN i.kind < 3 THEN one_more(t.last_attempt_no) ELSE t.last_attempt_no END,
            records = t.records
                + (i.kind IN (1, 2) OR i.kind = 0 AND NOT i.plain)::integer,
            history_bytes = t.history_bytes + CASE WHEN i.kind < 3 THEN i.bytes ELSE 0 END,
            result = coalesce(i.result, t.result),
            finished_at = CASE WHEN i.status > 0 THEN v_now END,
            finish_seq = CASE WHEN i.status > 0 THEN nextval('ends') END,
            purge_at = CASE WHEN i.kind = 2 THEN later(v_now, millis(t.retention_dead)) END,
            final_error_type = CASE WHEN i.kind = 2 THEN i.type END
        FROM item i
        WHERE i.verdict = 0 AND i.kind < 4 AND t.id = i.id AND t.generation = i.generation
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
    PERFORM FROM tasks WHERE id = ANY (p_ids) ORDER BY id FOR UPDATE;
    v_now := clock_ms();
    RETURN QUERY
    WITH item AS MATERIALIZED (
        SELECT i.*, t.queue, judge(t, i.generation, 0::smallint, i.strict, v_now) AS verdict,
            -- A bound that is not there is NULL, which least() passes over.
            least(later(v_now, i.lease), later(t.claimed_at, i.held_max)) AS lease_end
        FROM unnest(p_ids, p_generations, p_leases, p_held_max, p_progress, p_stricts)
            WITH ORDINALITY AS i (id, generation, lease, held_max, progress, strict, n)
        LEFT JOIN tasks t ON t.id = i.id
    ),
    kept AS (
        UPDATE tasks t SET
            lease_expires_at = i.lease_end,
            -- It moves only when it has to: else this update touches no index.
            at = CASE WHEN t.lane = 1 THEN least(t.at, i.lease_end) ELSE i.lease_end END,
            lane = 1,
            progress = CASE
                WHEN i.progress IS NULL THEN t.progress
                WHEN octet_length(i.progress) > 0 THEN i.progress END
        FROM item i
        WHERE i.verdict = 0 AND t.id = i.id AND t.generation = i.generation
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
BEGIN
    PERFORM FROM tasks WHERE id = ANY (p_ids) ORDER BY id FOR UPDATE;
    v_now := clock_ms();
    RETURN QUERY
    WITH item AS MATERIALIZED (
        SELECT i.n, t.*, CASE WHEN t.id IS NULL THEN 1 WHEN t.lane = 2 THEN 2 ELSE 0 END
            ::smallint AS verdict
        FROM unnest(p_ids) WITH ORDINALITY AS i (given, n)
        LEFT JOIN tasks t ON t.id = i.given
    ),
    recorded AS (
        INSERT INTO attempts
        SELECT i.seq, i.records, one_more(i.last_attempt_no), i.claimed_at, v_now, 5, i.claimed_by,
            NULL, NULL, NULL, NULL, '', 0
        FROM item i WHERE i.verdict = 0 AND i.status = 1
    ),
    ended AS (
        UPDATE tasks t SET
            status = 4,
            ending = CASE WHEN t.status = 1 THEN 1 ELSE t.ending END,
            lane = 2,
            at = v_now,
            lease_expires_at = NULL,
            claimed_at = NULL,
            claimed_by = NULL,
            attempt_count = CASE
                WHEN t.status = 1 THEN one_more(t.attempt_count) ELSE t.attempt_count END,
            last_attempt_no = CASE
                WHEN t.status = 1 THEN one_more(t.last_attempt_no) ELSE t.last_attempt_no END,
            records = t.records + (t.status = 1)::integer,
            history_bytes = t.history_bytes + CASE
                WHEN t.status = 1 THEN octet_length(t.claimed_by) ELSE 0 END,
            finished_at = v_now,
            finish_seq = nextval('ends')
        FROM item i WHERE i.verdict = 0 AND t.id = i.id
    )
    SELECT i.n, i.verdict, CASE WHEN i.verdict = 2 THEN i.status ELSE 4::smallint END FROM item i;
    PERFORM bound_histories(p_ids);
END;
$$;
