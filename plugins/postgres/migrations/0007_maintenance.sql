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
        SELECT id FROM tasks
        WHERE queue = p_queue AND expires_at <= v_now AND lane < 2
        ORDER BY expires_at LIMIT p_limit
        FOR UPDATE SKIP LOCKED
    );
    INSERT INTO attempts
    SELECT t.seq, t.records, one_more(t.last_attempt_no), t.claimed_at, v_now, 3, t.claimed_by,
        'rdq.Expired', 'the task was not finished by its expires_at', '', '', '', 0
    FROM tasks t WHERE t.id = ANY (v_ids);
    UPDATE tasks t SET
        status = 3,
        ending = CASE WHEN t.status = 1 THEN 2 ELSE t.ending END,
        lane = 2,
        at = v_now,
        lease_expires_at = NULL,
        claimed_at = NULL,
        claimed_by = NULL,
        attempt_count = one_more(t.attempt_count),
        last_attempt_no = one_more(t.last_attempt_no),
        records = t.records + 1,
        history_bytes = t.history_bytes + weight(
            t.claimed_by, 'rdq.Expired', 'the task was not finished by its expires_at', '', '', ''),
        finished_at = v_now,
        finish_seq = nextval('ends'),
        purge_at = later(v_now, millis(t.retention_dead)),
        final_error_type = 'rdq.Expired'
    WHERE t.id = ANY (v_ids);
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
        SELECT ctid FROM tasks WHERE id = ANY (p_ids) AND status = p_status
        ORDER BY id FOR UPDATE SKIP LOCKED
    );
    WITH removed AS (
        DELETE FROM tasks t USING unnest(v_tids) AS d (tid) WHERE t.ctid = d.tid
        RETURNING t.seq, t.records
    ),
    removed_attempts AS (
        DELETE FROM attempts a USING removed r WHERE r.records > 0 AND a.task = r.seq
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
                SELECT t.id, t.finished_at FROM tasks t
                WHERE t.queue = p_queue AND t.lane = 2 AND t.status = v_kind.status
                ORDER BY t.finish_seq LIMIT v_left
            ) AS o WHERE o.finished_at < v_kind.before
        );
        v_removed := v_removed + remove_finished(v_ids, v_kind.status);
        v_left := v_left - cardinality(v_ids);
    END LOOP;
    IF p_dead AND p_dead_age IS NOT NULL THEN
        v_ids := ARRAY(
            SELECT o.id FROM (
                SELECT t.id, t.finished_at FROM tasks t
                WHERE t.queue = p_queue AND t.status = 3 AND t.purge_at IS NULL
                ORDER BY t.finish_seq LIMIT v_left
            ) AS o WHERE o.finished_at <= v_now - p_dead_age
        );
        v_removed := v_removed + remove_finished(v_ids, 3::smallint);
        v_left := v_left - cardinality(v_ids);
    END IF;
    IF p_dead THEN
        v_ids := ARRAY(
            SELECT t.id FROM tasks t
            WHERE t.queue = p_queue AND t.purge_at <= v_now
            ORDER BY t.purge_at LIMIT v_left
        );
        v_removed := v_removed + remove_finished(v_ids, 3::smallint);
        v_left := v_left - cardinality(v_ids);
    END IF;
    RETURN QUERY SELECT v_expired, v_removed, v_left = 0;
END;
$$;
