-- Histories: what one record weighs, how a history is read, and how it stays bounded.

-- What a record weighs in the budget of its history.
CREATE FUNCTION weight(
    p_worker text, p_type text, p_message text, p_detail text, p_stack text, p_extra bytea
) RETURNS integer LANGUAGE sql IMMUTABLE
    RETURN coalesce(octet_length(p_worker), 0) + coalesce(octet_length(p_type), 0)
        + coalesce(octet_length(p_message), 0) + coalesce(octet_length(p_detail), 0)
        + coalesce(octet_length(p_stack), 0) + coalesce(octet_length(p_extra), 0);

-- The newest records, oldest first; stacks and details only if they are asked for.
CREATE FUNCTION history(p_task bigint, p_newest integer, p_whole boolean) RETURNS json
    LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT json_agg(
        json_build_array(
            r.attempt_no, r.started_at, r.finished_at, r.outcome, r.worker_id, r.error_type,
            r.message, CASE WHEN p_whole THEN r.detail END, CASE WHEN p_whole THEN r.stack END,
            encode(r.extra, 'hex'), r.folded_count
        ) ORDER BY r.ordinal
    )
    FROM (
        SELECT * FROM attempts WHERE task = p_task ORDER BY ordinal DESC LIMIT p_newest
    ) AS r;
END;

-- What the newest records weigh in an answer without stacks and details, their numbers and instants
-- included.
CREATE FUNCTION light_weight(p_task bigint, p_newest integer) RETURNS bigint LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT coalesce(sum(48 + weight(r.worker_id, r.error_type, r.message, '', '', r.extra)), 0)
    FROM (
        SELECT * FROM attempts WHERE task = p_task ORDER BY ordinal DESC LIMIT p_newest
    ) AS r;
END;

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
    UPDATE tasks SET folds = v_task.folds, history_bytes = v_task.history_bytes WHERE id = p_id;
END;
$$;

-- Does so for those of these tasks that need it.
CREATE FUNCTION bound_histories(p_ids text[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    v_id text;
BEGIN
    FOR v_id IN
        SELECT id FROM tasks
        WHERE id = ANY (p_ids) AND (records - folds > 10000 OR history_bytes > 1048576)
    LOOP
        PERFORM bound_history(v_id);
    END LOOP;
END;
$$;
