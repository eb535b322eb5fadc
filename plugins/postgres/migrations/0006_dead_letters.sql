-- Steps over dead letters, newest first: redrives and purges. A step says how far down the order of
-- deaths it came, so what dies while it runs is above it and not of its selection.

-- Which dead letters a step is about, newest first, and below which end the next one begins. Of all
-- that a filter may look at, one step looks at a bounded part.
CREATE FUNCTION select_dead(
    p_queue text, p_ids text[], p_type text, p_handler text, p_from bigint, p_to bigint,
    p_before bigint, p_limit integer, OUT ids text[], OUT ends bigint[], OUT next bigint
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_dead record;
    v_examined integer := 0;
BEGIN
    ids := '{}';
    ends := '{}';
    IF p_ids IS NOT NULL THEN
        FOR v_dead IN
            SELECT t.id, t.finish_seq FROM tasks t
            WHERE t.id = ANY (p_ids) AND t.queue = p_queue AND t.status = 3
                AND t.finish_seq < p_before
            ORDER BY t.finish_seq DESC
        LOOP
            IF cardinality(ids) = p_limit THEN
                next := ends[p_limit];
                RETURN;
            END IF;
            ids := ids || v_dead.id;
            ends := ends || v_dead.finish_seq;
        END LOOP;
        RETURN;
    END IF;
    FOR v_dead IN
        SELECT t.id, t.finish_seq, t.finished_at, t.final_error_type, t.handler_ref FROM tasks t
        WHERE t.queue = p_queue AND t.lane = 2 AND t.status = 3 AND t.finish_seq < p_before
        ORDER BY t.finish_seq DESC
        LIMIT 2001
    LOOP
        IF cardinality(ids) = p_limit OR v_examined = 2000 THEN
            RETURN;
        END IF;
        -- Nothing further down died later.
        IF v_dead.finished_at < p_from THEN
            next := NULL;
            RETURN;
        END IF;
        v_examined := v_examined + 1;
        next := v_dead.finish_seq;
        IF (p_type IS NULL OR v_dead.final_error_type = p_type)
            AND (p_handler IS NULL OR v_dead.handler_ref = p_handler)
            AND (p_to IS NULL OR v_dead.finished_at < p_to)
        THEN
            ids := ids || v_dead.id;
            ends := ends || v_dead.finish_seq;
        END IF;
    END LOOP;
    next := NULL;
END;
$$;

-- Makes dead letters pending; the first of `p_due_in` (milliseconds) is the newest one's.
CREATE FUNCTION redrive_step(
    p_queue text, p_ids text[], p_type text, p_handler text, p_from bigint, p_to bigint,
    p_before bigint, p_limit integer, p_dry_run boolean, p_due_in bigint[]
) RETURNS TABLE (count bigint, next bigint) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_now bigint;
    v_selected record;
    v_count bigint;
BEGIN
    SELECT * INTO v_selected
        FROM select_dead(p_queue, p_ids, p_type, p_handler, p_from, p_to, p_before, p_limit);
    v_count := cardinality(v_selected.ids);
    IF NOT p_dry_run THEN
        PERFORM FROM tasks WHERE id = ANY (v_selected.ids) ORDER BY id FOR UPDATE;
        v_now := clock_ms();
        UPDATE tasks t SET
            status = 0,
            ending = 0,
            lane = (later(v_now, s.due_in) > v_now)::integer,
            at = later(v_now, s.due_in),
            next_attempt_at = later(v_now, s.due_in),
            attempt_count = 0,
            redrive_count = one_more(t.redrive_count),
            finished_at = NULL,
            finish_seq = NULL,
            purge_at = NULL,
            final_error_type = NULL
        FROM unnest(v_selected.ids, v_selected.ends, p_due_in[1:v_count]) AS s (id, ended, due_in)
        -- Who was faster is not of this selection any more, even if it died again.
        WHERE t.id = s.id AND t.status = 3 AND t.finish_seq = s.ended;
        GET DIAGNOSTICS v_count = ROW_COUNT;
    END IF;
    RETURN QUERY SELECT v_count, v_selected.next;
END;
$$;

-- Removes dead letters.
CREATE FUNCTION purge_step(
    p_queue text, p_ids text[], p_type text, p_handler text, p_from bigint, p_to bigint,
    p_before bigint, p_limit integer, p_dry_run boolean
) RETURNS TABLE (count bigint, next bigint) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_selected record;
    v_count bigint;
BEGIN
    SELECT * INTO v_selected
        FROM select_dead(p_queue, p_ids, p_type, p_handler, p_from, p_to, p_before, p_limit);
    v_count := cardinality(v_selected.ids);
    IF NOT p_dry_run THEN
        PERFORM FROM tasks WHERE id = ANY (v_selected.ids) ORDER BY id FOR UPDATE;
        WITH removed AS (
            DELETE FROM tasks t USING unnest(v_selected.ids, v_selected.ends) AS s (id, ended)
            WHERE t.id = s.id AND t.status = 3 AND t.finish_seq = s.ended
            RETURNING t.seq, t.records
        ),
        removed_attempts AS (
            DELETE FROM attempts a USING removed r WHERE r.records > 0 AND a.task = r.seq
        )
        SELECT count(*) INTO v_count FROM removed;
    END IF;
    RETURN QUERY SELECT v_count, v_selected.next;
END;
$$;
