-- What becomes of finished tasks: steps over dead letters, newest first, and maintenance.

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
            SELECT f.id, f.finish_seq FROM finished f
            WHERE f.id = ANY (p_ids) AND f.queue = p_queue AND f.status = 3
                AND f.finish_seq < p_before
            ORDER BY f.finish_seq DESC
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
        SELECT f.id, f.finish_seq, f.finished_at, f.final_error_type, f.handler_ref
        FROM finished f
        WHERE f.queue = p_queue AND f.status = 3 AND f.finish_seq < p_before
        ORDER BY f.finish_seq DESC
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
        PERFORM FROM finished WHERE id = ANY (v_selected.ids) ORDER BY id FOR UPDATE;
        v_now := clock_ms();
        WITH taken AS (
            DELETE FROM finished f
            USING unnest(v_selected.ids, v_selected.ends, p_due_in[1:v_count])
                AS s (id, ended, due_in)
            -- Who was faster is not of this selection any more, even if it died again.
            WHERE f.id = s.id AND f.status = 3 AND f.finish_seq = s.ended
            RETURNING f.*, later(v_now, s.due_in) AS due
        )
        INSERT INTO unfinished
        SELECT t.seq, t.due, t.generation, t.created_at, t.due, NULL, NULL, t.expires_at, 0,
            one_more(t.redrive_count), t.lease_expired_count, t.last_attempt_no, t.max_attempts,
            t.lease, t.initial_backoff, t.retention_dead, t.rank, t.records, t.folds,
            t.history_bytes, (t.due > v_now)::integer, 0, 0, t.id, t.queue, t.handler_ref, NULL,
            t.progress, t.envelope
        FROM taken t ORDER BY t.id;
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
        PERFORM FROM finished WHERE id = ANY (v_selected.ids) ORDER BY id FOR UPDATE;
        WITH removed AS (
            DELETE FROM finished f USING unnest(v_selected.ids, v_selected.ends) AS s (id, ended)
            WHERE f.id = s.id AND f.status = 3 AND f.finish_seq = s.ended
            RETURNING f.seq, f.records, f.envelope IS NULL AS is_large
        ),
        removed_attempts AS (
            DELETE FROM attempts a USING removed r WHERE r.records > 0 AND a.task = r.seq
        ),
        removed_bodies AS (
            DELETE FROM bodies b USING removed r WHERE r.is_large AND b.task = r.seq
        )
        SELECT count(*) INTO v_count FROM removed;
    END IF;
    RETURN QUERY SELECT v_count, v_selected.next;
END;
$$;

-- Maintenance of a queue: what has expired dies, and what was kept long enough goes. A row that
-- somebody holds at the moment is left to the next step.

-- Makes dead letters of unfinished tasks that have expired, at most so many.
CREATE FUNCTION expire_some(p_queue text, p_limit integer) RETURNS integer
LANGUAGE plpgsql AS $$
DECLARE
    v_now bigint := clock_ms();
    v_ids text[];
BEGIN
    v_ids := ARRAY(
        SELECT id FROM unfinished
        WHERE queue = p_queue AND expires_at <= v_now
        ORDER BY expires_at LIMIT p_limit
        FOR UPDATE SKIP LOCKED
    );
    WITH ended AS (
        DELETE FROM unfinished WHERE id = ANY (v_ids) RETURNING *
    ),
    recorded AS (
        INSERT INTO attempts
        SELECT e.seq, e.records, one_more(e.last_attempt_no), e.claimed_at, v_now, 3,
            e.claimed_by, 'rdq.Expired', 'the task was not finished by its expires_at', '', '', '',
            0
        FROM ended e
    )
    INSERT INTO finished
    SELECT e.seq, e.generation, e.created_at,
        CASE WHEN e.status = 0 THEN e.next_attempt_at END, NULL, e.expires_at, v_now,
        nextval('ends'), later(v_now, millis(e.retention_dead)), one_more(e.attempt_count),
        e.redrive_count, e.lease_expired_count, one_more(e.last_attempt_no), e.max_attempts,
        e.lease, e.initial_backoff, e.retention_dead, e.rank, e.records + 1, e.folds,
        e.history_bytes + weight(
            e.claimed_by, 'rdq.Expired', 'the task was not finished by its expires_at', '', '', ''),
        3, CASE WHEN e.status = 1 THEN 2 ELSE e.ending END, false, e.id, e.queue, e.handler_ref,
        NULL, 'rdq.Expired', e.progress, NULL, e.envelope
    FROM ended e;
    PERFORM bound_histories(v_ids);
    RETURN cardinality(v_ids);
END;
$$;

-- Removes tasks that still have this status.
CREATE FUNCTION remove_finished(p_ids text[], p_status smallint) RETURNS integer
LANGUAGE plpgsql AS $$
DECLARE
    v_tids tid[];
    v_count integer;
BEGIN
    v_tids := ARRAY(
        SELECT ctid FROM finished WHERE id = ANY (p_ids) AND status = p_status
        ORDER BY id FOR UPDATE SKIP LOCKED
    );
    WITH removed AS (
        DELETE FROM finished WHERE ctid = ANY (v_tids)
        RETURNING seq, records, envelope IS NULL AS is_large
    ),
    removed_attempts AS (
        DELETE FROM attempts a USING removed r WHERE r.records > 0 AND a.task = r.seq
    ),
    removed_bodies AS (
        DELETE FROM bodies b USING removed r WHERE r.is_large AND b.task = r.seq
    )
    SELECT count(*) INTO v_count FROM removed;
    RETURN v_count;
END;
$$;

-- One step. Ages are instants: what finished before (exclusively) goes; NULL removes none.
-- `p_dead`: whether dead letters are looked at; `p_dead_age` (milliseconds) is the queue's.
CREATE FUNCTION sweep_step(
    p_queue text, p_expire boolean, p_succeeded_age bigint, p_succeeded_before bigint,
    p_cancelled_age bigint, p_cancelled_before bigint, p_dead boolean, p_dead_age bigint,
    p_limit integer
) RETURNS TABLE (expired integer, removed integer, more boolean) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_now bigint := clock_ms();
    v_expired integer := 0;
    v_removed integer := 0;
    v_left integer := p_limit;
    v_kind record;
    v_ids text[];
BEGIN
    IF p_expire THEN
        v_expired := expire_some(p_queue, v_left);
        v_left := v_left - v_expired;
    END IF;
    FOR v_kind IN
        SELECT * FROM (VALUES
            (2::smallint, coalesce(p_succeeded_before, v_now - p_succeeded_age + 1)),
            (4::smallint, coalesce(p_cancelled_before, v_now - p_cancelled_age + 1))
        ) AS k (status, before)
        WHERE k.before IS NOT NULL
    LOOP
        -- The oldest, up to the first that is too young: they finished in this order.
        v_ids := ARRAY(
            SELECT o.id FROM (
                SELECT f.id, f.finished_at FROM finished f
                WHERE f.queue = p_queue AND f.status = v_kind.status
                ORDER BY f.finish_seq LIMIT v_left
            ) AS o WHERE o.finished_at < v_kind.before
        );
        v_removed := v_removed + remove_finished(v_ids, v_kind.status);
        v_left := v_left - cardinality(v_ids);
    END LOOP;
    IF p_dead AND p_dead_age IS NOT NULL THEN
        v_ids := ARRAY(
            SELECT o.id FROM (
                SELECT f.id, f.finished_at FROM finished f
                WHERE f.queue = p_queue AND f.status = 3 AND f.purge_at IS NULL
                ORDER BY f.finish_seq LIMIT v_left
            ) AS o WHERE o.finished_at <= v_now - p_dead_age
        );
        v_removed := v_removed + remove_finished(v_ids, 3::smallint);
        v_left := v_left - cardinality(v_ids);
    END IF;
    IF p_dead THEN
        v_ids := ARRAY(
            SELECT f.id FROM finished f
            WHERE f.queue = p_queue AND f.purge_at <= v_now
            ORDER BY f.purge_at LIMIT v_left
        );
        v_removed := v_removed + remove_finished(v_ids, 3::smallint);
        v_left := v_left - cardinality(v_ids);
    END IF;
    RETURN QUERY SELECT v_expired, v_removed, v_left = 0;
END;
$$;
