-- Claims: how they are taken.

-- Makes ready what has come due in a queue, a bounded part of it. Only beyond that may a task of
-- higher priority wait for the next claim.
CREATE FUNCTION promote(p_queue text, p_now bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    v_tids tid[];
BEGIN
    SELECT array_agg(d.tid) INTO v_tids FROM (
        SELECT ctid AS tid FROM unfinished
        WHERE queue = p_queue AND lane = 1 AND at <= p_now
        ORDER BY at LIMIT 2000
        FOR UPDATE SKIP LOCKED
    ) AS d;
    IF v_tids IS NOT NULL THEN
        UPDATE unfinished SET
            -- A heartbeat may have moved the end of a lease.
            lane = (status = 1 AND lease_expires_at > p_now)::integer,
            at = CASE WHEN status = 1 THEN lease_expires_at ELSE at END
        WHERE ctid = ANY (v_tids);
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
    v_due bigint;
    v_soonest bigint;
BEGIN
    FOR v_turn IN 1 .. cardinality(p_queues) LOOP
        v_due := CASE
            WHEN EXISTS (
                SELECT FROM unfinished WHERE queue = p_queues[v_turn] AND lane = 0
                    AND (rank, at, seq)
                        > (p_head_ranks[v_turn], p_head_ats[v_turn], p_head_seqs[v_turn])
            ) THEN p_now
            WHEN EXISTS (SELECT FROM unfinished WHERE queue = p_queues[v_turn] AND lane = 0)
                THEN p_now
            ELSE (
                SELECT at FROM unfinished
                WHERE queue = p_queues[v_turn] AND lane = 1 ORDER BY at LIMIT 1
            )
        END;
        v_soonest := least(v_soonest, v_due);
        EXIT WHEN v_soonest <= p_now;
    END LOOP;
    RETURN until(v_soonest, p_now);
END;
$$;

-- Serves claims of the same queues together, in one transaction, which holds no other lock: SKIP
-- LOCKED waits all the same where it follows an updated row into one that another transaction
-- removes, and who held locks of its own then could wait in a circle. Durations are milliseconds.
--
-- It looks for due tasks behind a queue's head (the place in `unfinished_ready` of a task that was
-- claimed before), where there may be none left in front of it but rows that died lately, each of
-- which would be looked at; it looks from the start where there is not enough behind. Each answered
-- row but the last is a task, by the number of its claim; the last says when to come again.
CREATE FUNCTION claim_batch(
    p_queues text[], p_leases bigint[], p_leases_max bigint[], p_head_ranks integer[],
    p_head_ats bigint[], p_head_seqs bigint[], p_limits integer[], p_bytes_max bigint[],
    p_claim_leases bigint[], p_workers text[]
) RETURNS TABLE (
    claim integer, next_due_in bigint, was_due bigint, seq bigint, generation bigint,
    created_at bigint, claimed_at bigint, lease_expires_at bigint, expires_at bigint,
    attempt_count bigint, redrive_count bigint, lease_expired_count bigint,
    last_attempt_no bigint, max_attempts bigint, lease bigint, initial_backoff bigint,
    retention_dead bigint, rank integer, id text, queue text, handler_ref text, progress bytea,
    envelope bytea, history text
)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_now bigint := clock_ms();
    -- Of the claim that is being filled, and of those after it.
    v_claim integer := 1;
    v_room integer := p_limits[1];
    v_bytes bigint := p_bytes_max[1];
    v_is_empty boolean := true;
    v_left integer := 0;
    v_turns integer[] := ARRAY(SELECT generate_series(1, cardinality(p_queues)));
    v_fuller integer[];
    v_is_rest boolean := false;
    v_share integer;
    v_turn integer;
    v_tids tid[];
    v_claims integer[];
    v_weights bigint[];
    v_ranks integer[];
    v_ats bigint[];
    v_seqs bigint[];
    -- Of tasks that have no lease of their own, or of all, by claim.
    v_lease_ends bigint[];
    v_lapsed text[];
    v_weight bigint;
    v_from_start boolean;
    v_found integer;
    v_fitting integer;
BEGIN
    FOR v_at IN 1 .. cardinality(p_limits) LOOP
        v_left := v_left + p_limits[v_at];
    END LOOP;
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
            -- The locked rows' places are what is updated then, so that no plan can take more than
            -- the limit.
            SELECT array_agg(d.tid), array_agg(d.bytes), array_agg(d.rank), array_agg(d.at),
                array_agg(d.seq), array_agg(d.id) FILTER (WHERE d.status = 1), sum(d.bytes),
                count(*)
            INTO v_tids, v_weights, v_ranks, v_ats, v_seqs, v_lapsed, v_weight, v_found
            FROM (
                SELECT u.ctid AS tid, u.id, u.status, u.rank, u.at, u.seq,
                    CASE
                        WHEN u.envelope IS NULL THEN envelope_bytes(u.envelope, u.seq)
                        ELSE octet_length(u.envelope)
                    END + coalesce(octet_length(u.progress), 0)
                        + CASE WHEN u.records > 0 THEN light_weight(u.seq, 100) ELSE 0 END
                        + CASE WHEN u.status = 1 THEN 128 ELSE 0 END AS bytes
                FROM unfinished u
                WHERE u.queue = p_queues[v_turn] AND u.lane = 0 AND u.at <= v_now
                    AND (u.rank, u.at, u.seq)
                        > (p_head_ranks[v_turn], p_head_ats[v_turn], p_head_seqs[v_turn])
                ORDER BY u.rank, u.at, u.seq
                LIMIT v_share
                FOR UPDATE SKIP LOCKED
            ) AS d;
            v_fitting := 0;
            IF v_found > 0 AND v_found <= v_room AND v_weight <= v_bytes THEN
                -- As a rule one claim takes them all.
                v_fitting := v_found;
                v_claims := array_fill(v_claim, ARRAY[v_found]);
                v_room := v_room - v_found;
                v_bytes := v_bytes - v_weight;
                v_is_empty := false;
            ELSIF v_found > 0 THEN
                v_claims := '{}';
                WHILE v_fitting < v_found LOOP
                    -- A task that does not fit ends its claim: those behind it must not overtake
                    -- it. A first one fits.
                    IF v_room = 0 OR v_weights[v_fitting + 1] > v_bytes AND NOT v_is_empty THEN
                        v_left := v_left - v_room;
                        EXIT WHEN v_claim = cardinality(p_limits);
                        v_claim := v_claim + 1;
                        v_room := p_limits[v_claim];
                        v_bytes := p_bytes_max[v_claim];
                        v_is_empty := true;
                    ELSE
                        v_fitting := v_fitting + 1;
                        v_claims := v_claims || v_claim;
                        v_room := v_room - 1;
                        v_bytes := greatest(v_bytes - v_weights[v_fitting], 0);
                        v_is_empty := false;
                    END IF;
                END LOOP;
                IF v_lapsed IS NOT NULL AND v_fitting < v_found THEN
                    v_lapsed := (
                        SELECT array_agg(u.id) FROM unfinished u
                        WHERE u.ctid = ANY (v_tids[1:v_fitting]) AND u.status = 1);
                END IF;
            END IF;
            IF v_fitting > 0 THEN
                IF v_lapsed IS NOT NULL THEN
                    INSERT INTO attempts
                    SELECT u.seq, u.records, one_more(u.last_attempt_no), u.claimed_at, v_now, 4,
                        u.claimed_by, 'rdq.LeaseExpired',
                        'the lease ran out and the task was claimed again', '', '', '', 0
                    FROM unfinished u WHERE u.id = ANY (v_lapsed);
                END IF;
                -- A function for each row would take as long as an index.
                FOR v_at_claim IN v_claims[1] .. v_claims[v_fitting] LOOP
                    v_lease_ends[v_at_claim] := later(v_now, least(
                        coalesce(p_claim_leases[v_at_claim], p_leases[v_turn]),
                        p_leases_max[v_turn]));
                END LOOP;
                RETURN QUERY
                UPDATE unfinished u SET
                    lane = 1,
                    status = 1,
                    ending = 0,
                    attempt_count = CASE
                        WHEN u.status = 1 THEN one_more(u.attempt_count)
                        ELSE u.attempt_count END,
                    lease_expired_count = CASE
                        WHEN u.status = 1 THEN one_more(u.lease_expired_count)
                        ELSE u.lease_expired_count END,
                    last_attempt_no = CASE
                        WHEN u.status = 1 THEN one_more(u.last_attempt_no)
                        ELSE u.last_attempt_no END,
                    records = u.records + (u.status = 1)::integer,
                    history_bytes = CASE
                        WHEN u.status = 1 THEN u.history_bytes + weight(
                            u.claimed_by, 'rdq.LeaseExpired',
                            'the lease ran out and the task was claimed again', '', '', '')
                        ELSE u.history_bytes END,
                    generation = nextval('claims'),
                    claimed_at = v_now,
                    claimed_by = p_workers[f.claim],
                    next_attempt_at = u.at,
                    lease_expires_at = CASE
                        WHEN p_claim_leases[f.claim] IS NOT NULL OR u.lease IS NULL
                            THEN v_lease_ends[f.claim]
                        ELSE later(v_now, least(millis(u.lease), p_leases_max[v_turn])) END,
                    at = CASE
                        WHEN p_claim_leases[f.claim] IS NOT NULL OR u.lease IS NULL
                            THEN v_lease_ends[f.claim]
                        ELSE later(v_now, least(millis(u.lease), p_leases_max[v_turn])) END
                FROM unnest(v_tids, v_claims) AS f (tid, claim)
                WHERE u.ctid = f.tid AND f.claim IS NOT NULL
                RETURNING f.claim, NULL::bigint, u.next_attempt_at, u.seq, u.generation,
                    u.created_at, u.claimed_at, u.lease_expires_at, u.expires_at,
                    u.attempt_count, u.redrive_count, u.lease_expired_count, u.last_attempt_no,
                    u.max_attempts, u.lease, u.initial_backoff, u.retention_dead, u.rank, u.id,
                    u.queue, u.handler_ref, u.progress,
                    CASE
                        WHEN u.envelope IS NULL
                            THEN (SELECT body FROM bodies WHERE task = u.seq)
                        ELSE u.envelope
                    END,
                    CASE WHEN u.records > 0 THEN history(u.seq, 100, false)::text END;
                IF v_lapsed IS NOT NULL THEN
                    PERFORM bound_histories(v_lapsed);
                END IF;
                p_head_ranks[v_turn] := v_ranks[v_fitting];
                p_head_ats[v_turn] := v_ats[v_fitting];
                p_head_seqs[v_turn] := v_seqs[v_fitting];
            END IF;
            v_left := v_left - v_fitting;
            IF v_fitting < v_found THEN
                v_left := 0;
            ELSIF v_fitting = v_share THEN
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
    claim := NULL;
    next_due_in := next_due_in(p_queues, p_head_ranks, p_head_ats, p_head_seqs, v_now);
    RETURN NEXT;
END;
$$;

-- Takes due tasks, at most so many. Call it in a transaction of its own, which commits before the
-- work begins.
CREATE OR REPLACE FUNCTION claim_due(
    p_queues text[], p_worker_id text, p_limit integer DEFAULT 1,
    p_lease interval DEFAULT '1 minute'
) RETURNS TABLE (
    id text, queue text, handler_ref text, payload bytea, attempt_count bigint,
    max_attempts bigint, progress bytea, claim_token bytea, generation bigint,
    lease_expires_at timestamptz, envelope bytea
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_count integer := cardinality(p_queues);
    -- Drawn anew for each call, so that none starves the others. A server's queues take turns.
    v_queues text[] := ARRAY(SELECT q FROM unnest(p_queues) AS q ORDER BY random());
    v_lease bigint := interval_millis(p_lease);
BEGIN
    PERFORM checked_name('worker_id', p_worker_id, 241);
    IF v_lease NOT BETWEEN 10 AND 43200000 THEN
        RAISE EXCEPTION 'INVALID_ARGUMENT: lease must be 10 milliseconds to 12 hours'
            USING ERRCODE = 'RDQ04';
    END IF;
    IF p_limit < 1 OR v_count = 0 THEN
        RETURN;
    END IF;
    RETURN QUERY
    SELECT c.id, c.queue, c.handler_ref, payload_of(c.envelope), c.attempt_count, c.max_attempts,
        coalesce(c.progress, ''), s.store_id || int8send(c.generation), c.generation,
        to_timestamp(c.lease_expires_at / 1000.0), c.envelope
    FROM claim_batch(
        v_queues, array_fill(v_lease, ARRAY[v_count]), array_fill(43200000::bigint, ARRAY[v_count]),
        array_fill(-2147483648, ARRAY[v_count]),
        array_fill(-9223372036854775808, ARRAY[v_count]), array_fill(0::bigint, ARRAY[v_count]),
        ARRAY[least(p_limit, 1000)], ARRAY[33554432::bigint], ARRAY[v_lease], ARRAY[p_worker_id]
    ) AS c
    CROSS JOIN store s
    WHERE c.claim IS NOT NULL
    ORDER BY c.rank, c.was_due, c.seq;
END;
$$;
