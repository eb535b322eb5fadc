-- Claims: how they are taken.

-- Makes ready what has come due in a queue, a bounded part of it. Only beyond that may a task of
-- higher priority wait for the next claim.
CREATE FUNCTION promote(p_queue text, p_now bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    v_tids tid[];
BEGIN
    SELECT array_agg(d.tid) INTO v_tids FROM (
        SELECT ctid AS tid FROM tasks
        WHERE queue = p_queue AND lane = 1 AND at <= p_now
        ORDER BY at LIMIT 2000
        FOR UPDATE SKIP LOCKED
    ) AS d;
    IF v_tids IS NOT NULL THEN
        UPDATE tasks t SET
            -- A heartbeat may have moved the end of a lease.
            lane = (t.status = 1 AND t.lease_expires_at > p_now)::integer,
            at = CASE WHEN t.status = 1 THEN t.lease_expires_at ELSE t.at END
        FROM unnest(v_tids) AS d (tid)
        WHERE t.ctid = d.tid;
    END IF;
END;
$$;

-- How long until the next task of these queues may be due; NULL if nothing waits. It looks behind
-- the queues' heads first.
CREATE FUNCTION next_due_in(
    p_queues text[], p_head_ranks integer[], p_head_ats bigint[], p_head_seqs bigint[],
    p_now bigint
) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    v_soonest bigint;
BEGIN
    FOR v_turn IN 1 .. cardinality(p_queues) LOOP
        PERFORM FROM tasks
        WHERE queue = p_queues[v_turn] AND lane = 0
            AND (~priority, at, seq)
                > (p_head_ranks[v_turn], p_head_ats[v_turn], p_head_seqs[v_turn])
        ORDER BY ~priority, at, seq LIMIT 1;
        IF FOUND THEN
            RETURN 0;
        END IF;
    END LOOP;
    FOR v_turn IN 1 .. cardinality(p_queues) LOOP
        PERFORM FROM tasks
        WHERE queue = p_queues[v_turn] AND lane = 0 ORDER BY ~priority, at, seq LIMIT 1;
        IF FOUND THEN
            RETURN 0;
        END IF;
        v_soonest := least(v_soonest, (
            SELECT at FROM tasks
            WHERE queue = p_queues[v_turn] AND lane = 1 ORDER BY at LIMIT 1
        ));
    END LOOP;
    RETURN until(v_soonest, p_now);
END;
$$;

-- One claim. Durations are milliseconds. It looks for due tasks behind a queue's head (the place in
-- `tasks_ready` of a task that was claimed before), where there may be none left in front of it but
-- rows that died lately, each of which would be looked at; it looks from the start where there is
-- not enough behind. Each answered row but the last is a claim, by its number and by when it was
-- due; the last says when to come again.
CREATE FUNCTION claim_one(
    p_queues text[], p_leases bigint[], p_leases_max bigint[], p_head_ranks integer[],
    p_head_ats bigint[], p_head_seqs bigint[], p_limit integer, p_bytes_max bigint,
    p_lease bigint, p_worker text
) RETURNS TABLE (n integer, next_due_in bigint, was_due bigint, task tasks, history json)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_now bigint := clock_ms();
    v_left integer := p_limit;
    v_bytes bigint := p_bytes_max;
    v_taken integer := 0;
    v_turns integer[] := ARRAY(SELECT generate_series(1, cardinality(p_queues)));
    v_fuller integer[];
    v_is_rest boolean := false;
    v_share integer;
    v_turn integer;
    v_tids tid[];
    v_ats bigint[];
    v_ranks integer[];
    v_seqs bigint[];
    v_from_start boolean;
    -- The end of the leases of tasks that have none of their own; of all, if the claim has one. A
    -- function called for each row would take as long as an index.
    v_lease_end bigint;
    v_is_common boolean := p_lease IS NOT NULL;
    v_lapsed text[];
    v_found integer;
    v_fitting integer;
    v_weight bigint;
BEGIN
    FOR v_turn IN 1 .. cardinality(p_queues) LOOP
        PERFORM promote(p_queues[v_turn], v_now);
    END LOOP;
    -- First each queue gets its share of what is left, then those that have more get the rest.
    WHILE v_left > 0 AND cardinality(v_turns) > 0 LOOP
        v_fuller := '{}';
        FOR v_at IN 1 .. cardinality(v_turns) LOOP
            EXIT WHEN v_left = 0;
            v_turn := v_turns[v_at];
            v_share := v_left;
            IF NOT v_is_rest THEN
                v_share := (v_left + cardinality(v_turns) - v_at)
                    / (cardinality(v_turns) - v_at + 1);
            END IF;
            v_from_start := p_head_ats[v_turn] = -9223372036854775808;
            v_lease_end := later(v_now, least(
                coalesce(p_lease, p_leases[v_turn]), p_leases_max[v_turn]));
            -- The locked rows' places are what is updated then, so that no plan can take more than
            -- the limit. A task that does not fit ends the claim: those behind it must not
            -- overtake it.
            WITH due AS MATERIALIZED (
                SELECT t.ctid AS tid, t.id, t.status, t.priority, t.at, t.seq,
                    octet_length(t.envelope) + coalesce(octet_length(t.progress), 0)
                        + CASE WHEN t.records > 0 THEN light_weight(t.seq, 100) ELSE 0 END
                        + CASE WHEN t.status = 1 THEN 128 ELSE 0 END AS bytes
                FROM tasks t
                WHERE t.queue = p_queues[v_turn] AND t.lane = 0 AND t.at <= v_now
                    AND (~t.priority, t.at, t.seq)
                        > (p_head_ranks[v_turn], p_head_ats[v_turn], p_head_seqs[v_turn])
                ORDER BY ~t.priority, t.at, t.seq
                LIMIT v_share
                FOR UPDATE SKIP LOCKED
            ),
            weighed AS (
                SELECT d.*, sum(d.bytes) OVER ordered AS so_far, row_number() OVER ordered AS place
                FROM due d WINDOW ordered AS (ORDER BY ~d.priority, d.at, d.seq)
            ),
            fitting AS (
                SELECT w.*, w.so_far <= v_bytes OR w.place + v_taken = 1 AS fits FROM weighed w
            )
            SELECT array_agg(f.tid ORDER BY f.place) FILTER (WHERE f.fits),
                array_agg(f.at ORDER BY f.place) FILTER (WHERE f.fits),
                array_agg(~f.priority ORDER BY f.place) FILTER (WHERE f.fits),
                array_agg(f.seq ORDER BY f.place) FILTER (WHERE f.fits),
                array_agg(f.id) FILTER (WHERE f.fits AND f.status = 1),
                count(*), count(*) FILTER (WHERE f.fits), sum(f.bytes) FILTER (WHERE f.fits)
            INTO v_tids, v_ats, v_ranks, v_seqs, v_lapsed, v_found, v_fitting, v_weight
            FROM fitting f;
            IF v_fitting > 0 THEN
                IF v_lapsed IS NOT NULL THEN
                    INSERT INTO attempts
                    SELECT t.seq, t.records, one_more(t.last_attempt_no), t.claimed_at, v_now, 4,
                        t.claimed_by, 'rdq.LeaseExpired',
                        'the lease ran out and the task was claimed again', '', '', '', 0
                    FROM tasks t WHERE t.id = ANY (v_lapsed);
                END IF;
                RETURN QUERY
                UPDATE tasks t SET
                    lane = 1,
                    status = 1,
                    ending = 0,
                    attempt_count = CASE
                        WHEN t.status = 1 THEN one_more(t.attempt_count)
                        ELSE t.attempt_count END,
                    lease_expired_count = CASE
                        WHEN t.status = 1 THEN one_more(t.lease_expired_count)
                        ELSE t.lease_expired_count END,
                    last_attempt_no = CASE
                        WHEN t.status = 1 THEN one_more(t.last_attempt_no)
                        ELSE t.last_attempt_no END,
                    records = t.records + (t.status = 1)::integer,
                    history_bytes = t.history_bytes + CASE
                        WHEN t.status = 1 THEN weight(
                            t.claimed_by, 'rdq.LeaseExpired',
                            'the lease ran out and the task was claimed again', '', '', '')
                        ELSE 0 END,
                    generation = nextval('claims'),
                    claimed_at = v_now,
                    claimed_by = p_worker,
                    next_attempt_at = NULL,
                    lease_expires_at = CASE
                        WHEN v_is_common OR t.lease IS NULL THEN v_lease_end
                        ELSE later(v_now, least(millis(t.lease), p_leases_max[v_turn])) END,
                    at = CASE
                        WHEN v_is_common OR t.lease IS NULL THEN v_lease_end
                        ELSE later(v_now, least(millis(t.lease), p_leases_max[v_turn])) END
                FROM unnest(v_tids, v_ats) WITH ORDINALITY AS f (tid, at, place)
                WHERE t.ctid = f.tid
                RETURNING v_taken + f.place::integer, NULL::bigint, f.at, t,
                    CASE WHEN t.records > 0 THEN history(t.seq, 100, false) END;
                IF v_lapsed IS NOT NULL THEN
                    PERFORM bound_histories(v_lapsed);
                END IF;
                p_head_ranks[v_turn] := v_ranks[v_fitting];
                p_head_ats[v_turn] := v_ats[v_fitting];
                p_head_seqs[v_turn] := v_seqs[v_fitting];
            END IF;
            v_taken := v_taken + v_fitting;
            v_left := CASE WHEN v_fitting < v_found THEN 0 ELSE v_left - v_fitting END;
            v_bytes := greatest(v_bytes - coalesce(v_weight, 0), 0);
            IF v_fitting = v_share THEN
                v_fuller := v_fuller || v_turn;
            ELSIF NOT v_from_start THEN
                -- Something may stand in front of the head.
                p_head_ranks[v_turn] := -2147483648;
                p_head_ats[v_turn] := -9223372036854775808;
                v_fuller := v_fuller || v_turn;
            END IF;
        END LOOP;
        v_turns := v_fuller;
        v_is_rest := true;
    END LOOP;
    RETURN QUERY SELECT NULL::integer, next_due_in(
        p_queues, p_head_ranks, p_head_ats, p_head_seqs, v_now
    ), NULL::bigint, NULL::tasks,
        NULL::json;
END;
$$;

-- Serves claims, all in one transaction, which holds no other lock: SKIP LOCKED waits all the same
-- where it follows an updated row into one that another transaction removes, and who held locks of
-- its own then could wait in a circle. The queues of all claims are one list, of which each claim
-- has a part.
CREATE FUNCTION claim_batch(
    p_queues text[], p_leases bigint[], p_leases_max bigint[], p_head_ranks integer[],
    p_head_ats bigint[], p_head_seqs bigint[], p_firsts integer[], p_lasts integer[],
    p_limits integer[], p_bytes_max bigint[], p_claim_leases bigint[], p_workers text[]
) RETURNS TABLE (
    claim bigint, n integer, next_due_in bigint, was_due bigint, task tasks, history json
)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT c.claim, r.n, r.next_due_in, r.was_due, r.task, r.history
    FROM unnest(p_firsts, p_lasts, p_limits, p_bytes_max, p_claim_leases, p_workers)
        WITH ORDINALITY AS c (first, last, max, bytes_max, lease, worker, claim)
    CROSS JOIN LATERAL claim_one(
        p_queues[c.first:c.last], p_leases[c.first:c.last], p_leases_max[c.first:c.last],
        p_head_ranks[c.first:c.last], p_head_ats[c.first:c.last], p_head_seqs[c.first:c.last],
        c.max, c.bytes_max, c.lease, c.worker
    ) AS r;
END;
$$;
