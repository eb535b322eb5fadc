-- For other languages: functions to call inside one's own transaction (`enqueue`), and with which a
-- worker shares the tables with running servers. SCHEMA.md is their manual. They check what a
-- server checks at its door.

-- A name, as it is; refuses what is none.
CREATE FUNCTION checked_name(p_what text, p_name text, p_bytes_max integer) RETURNS text
LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    IF p_name IS NULL OR octet_length(p_name) NOT BETWEEN 1 AND p_bytes_max
        OR p_name !~ '[^[:space:]\u0085\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]'
        OR p_name ~ '[\u0001-\u001f\u007f-\u009f]'
    THEN
        RAISE EXCEPTION 'INVALID_NAME: % must be 1 to % bytes, not only white space, and without '
            'control characters', p_what, p_bytes_max USING ERRCODE = 'RDQ04';
    END IF;
    IF p_bytes_max = 240 AND starts_with(p_name, '__rdq_') THEN
        RAISE EXCEPTION 'RESERVED_NAME: % must not start with __rdq_', p_what
            USING ERRCODE = 'RDQ04';
    END IF;
    RETURN p_name;
END;
$$;

-- Milliseconds of an interval, rounded up; below zero is zero.
CREATE FUNCTION interval_millis(p_interval interval) RETURNS bigint LANGUAGE sql IMMUTABLE
    RETURN CASE
        WHEN p_interval IS NULL THEN NULL
        ELSE greatest(ceil(extract(epoch FROM p_interval) * 1000), 0)::bigint
    END;

-- A Protocol Buffers number.
CREATE FUNCTION proto_varint(p_number bigint) RETURNS bytea LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    v_bytes bytea := '';
    -- A number below zero is sent as its complement in 64 bits.
    v_rest numeric := CASE
        WHEN p_number < 0 THEN p_number + 18446744073709551616 ELSE p_number END;
BEGIN
    LOOP
        IF v_rest < 128 THEN
            RETURN v_bytes || set_byte('\x00', 0, v_rest::integer);
        END IF;
        v_bytes := v_bytes || set_byte('\x00', 0, (v_rest % 128)::integer + 128);
        v_rest := div(v_rest, 128);
    END LOOP;
END;
$$;

-- A field of bytes or text; nothing if there is none.
CREATE FUNCTION proto_bytes(p_field integer, p_bytes bytea) RETURNS bytea
    LANGUAGE sql IMMUTABLE
    RETURN CASE
        WHEN p_bytes IS NULL THEN ''::bytea
        ELSE proto_varint(p_field * 8 + 2) || proto_varint(octet_length(p_bytes)) || p_bytes
    END;

-- A field that is a number; nothing if there is none.
CREATE FUNCTION proto_number(p_field integer, p_number bigint) RETURNS bytea
    LANGUAGE sql IMMUTABLE
    RETURN CASE
        WHEN p_number IS NULL THEN ''::bytea
        ELSE proto_varint(p_field * 8) || proto_varint(p_number)
    END;

-- The payload in an envelope: field 6 of rdq.v1.Task, the last one counting.
CREATE FUNCTION payload_of(p_envelope bytea) RETURNS bytea LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    v_at integer := 0;
    v_numbers bigint[];
    v_shift integer;
    v_number bigint;
    v_byte integer;
    v_payload bytea := '';
BEGIN
    WHILE v_at < octet_length(p_envelope) LOOP
        v_numbers := '{}';
        -- The field's key and, but for fields of fixed width, its number or its length.
        LOOP
            v_number := 0;
            v_shift := 0;
            LOOP
                v_byte := get_byte(p_envelope, v_at);
                v_at := v_at + 1;
                v_number := v_number | ((v_byte & 127)::bigint << v_shift);
                v_shift := v_shift + 7;
                EXIT WHEN v_byte < 128;
            END LOOP;
            v_numbers := v_numbers || v_number;
            EXIT WHEN cardinality(v_numbers) = 2 OR v_numbers[1] & 7 NOT IN (0, 2);
        END LOOP;
        CASE v_numbers[1] & 7
            WHEN 0 THEN NULL;
            WHEN 1 THEN v_at := v_at + 8;
            WHEN 2 THEN
                IF v_numbers[1] >> 3 = 6 THEN
                    v_payload := substring(p_envelope FROM v_at + 1 FOR v_numbers[2]::integer);
                END IF;
                v_at := v_at + v_numbers[2]::integer;
            WHEN 5 THEN v_at := v_at + 4;
            -- Groups hold fields of their own, of which none is the payload's in a valid envelope.
            ELSE NULL;
        END CASE;
    END LOOP;
    RETURN v_payload;
END;
$$;

-- Tells servers that something of the queue is due then.
CREATE FUNCTION tell(p_queue text, p_due_in bigint) RETURNS void LANGUAGE sql VOLATILE
BEGIN ATOMIC
    SELECT pg_notify(
        'rdq_' || encode(store_id, 'hex'), 'sql' || chr(10) || p_due_in || ' ' || p_queue
    ) FROM store;
END;

-- Admits a task in the caller's transaction: it exists when that commits, and never if it does not.
-- An id that the queue has already is the same task (`created` is false then).
CREATE FUNCTION enqueue(
    p_queue text, p_handler_ref text, p_payload bytea DEFAULT '', p_id text DEFAULT NULL,
    p_priority integer DEFAULT 0, p_delay interval DEFAULT NULL,
    p_expires_in interval DEFAULT NULL, p_max_attempts integer DEFAULT NULL,
    p_content_type text DEFAULT NULL, p_headers jsonb DEFAULT NULL
) RETURNS TABLE (id text, created boolean) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_id text := checked_name('id', coalesce(p_id, gen_random_uuid()::text), 255);
    v_envelope bytea;
    v_answer record;
BEGIN
    PERFORM checked_name('queue', p_queue, 240), checked_name('handler_ref', p_handler_ref, 240);
    IF p_max_attempts < 1 THEN
        RAISE EXCEPTION 'INVALID_ARGUMENT: max_attempts must be at least 1'
            USING ERRCODE = 'RDQ04';
    END IF;
    IF octet_length(p_payload) > 1048576 THEN
        RAISE EXCEPTION 'PAYLOAD_TOO_LARGE: % bytes, and 1048576 is the limit',
            octet_length(p_payload) USING ERRCODE = 'RDQ04';
    END IF;
    -- As a client would have encoded it.
    v_envelope := proto_bytes(2, convert_to(v_id, 'UTF8'))
        || proto_bytes(3, convert_to(p_queue, 'UTF8'))
        || proto_bytes(4, convert_to(p_handler_ref, 'UTF8'))
        || proto_bytes(6, nullif(p_payload, ''))
        || proto_bytes(7, convert_to(nullif(p_content_type, ''), 'UTF8'))
        || coalesce((
            SELECT string_agg(
                proto_bytes(8, proto_bytes(1, convert_to(h.key, 'UTF8'))
                    || proto_bytes(2, convert_to(h.value, 'UTF8'))), ''::bytea ORDER BY h.key)
            FROM jsonb_each_text(p_headers) AS h
        ), '')
        || proto_number(9, nullif(p_priority, 0))
        || proto_number(10, p_max_attempts);
    LOOP
        SELECT * INTO v_answer FROM enqueue_batch(
            ARRAY[v_id], ARRAY[p_queue], ARRAY[p_handler_ref], ARRAY[coalesce(p_priority, 0)],
            ARRAY[NULL::bigint], ARRAY[coalesce(interval_millis(p_delay), 0)],
            ARRAY[NULL::bigint], ARRAY[interval_millis(p_expires_in)], ARRAY[NULL::bigint],
            ARRAY[v_envelope], ARRAY[p_max_attempts::bigint], ARRAY[NULL::bigint],
            ARRAY[NULL::bigint], ARRAY[NULL::bigint], ARRAY[0::bigint], ARRAY[0::bigint],
            ARRAY[0::bigint], ARRAY[NULL::bytea], ARRAY[0::bigint], ARRAY[0], ARRAY[NULL::text]
        );
        EXIT WHEN v_answer.verdict < 3;
    END LOOP;
    IF v_answer.verdict = 2 THEN
        RAISE EXCEPTION 'ID_CONFLICT: task id % is taken in another queue', v_id
            USING ERRCODE = 'RDQ03';
    END IF;
    IF v_answer.verdict = 0 AND v_answer.due_in < 1500 THEN
        PERFORM tell(p_queue, v_answer.due_in);
    END IF;
    RETURN QUERY SELECT v_id, v_answer.verdict = 0;
END;
$$;

-- The claim that a token stands for; NULL if this store did not issue it.
CREATE FUNCTION generation_of(p_token bytea) RETURNS bigint LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT ('x' || encode(substring(p_token FROM 9), 'hex'))::bit(64)::bigint
    FROM store WHERE octet_length(p_token) = 16 AND substring(p_token FOR 8) = store_id;
END;

-- Takes due tasks, at most so many. Call it in a transaction of its own, which commits before the
-- work begins.
CREATE FUNCTION claim_due(
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
    SELECT (c.task).id, (c.task).queue, (c.task).handler_ref, payload_of((c.task).envelope),
        (c.task).attempt_count, (c.task).max_attempts, coalesce((c.task).progress, ''),
        s.store_id || int8send((c.task).generation), (c.task).generation,
        to_timestamp((c.task).lease_expires_at / 1000.0), (c.task).envelope
    FROM claim_batch(
        v_queues, array_fill(v_lease, ARRAY[v_count]), array_fill(43200000::bigint, ARRAY[v_count]),
        array_fill(-2147483648, ARRAY[v_count]),
        array_fill(-9223372036854775808, ARRAY[v_count]), array_fill(0::bigint, ARRAY[v_count]),
        ARRAY[1], ARRAY[v_count], ARRAY[least(p_limit, 1000)], ARRAY[33554432::bigint],
        ARRAY[v_lease], ARRAY[p_worker_id]
    ) AS c
    CROSS JOIN store s
    WHERE c.n IS NOT NULL
    ORDER BY c.n;
END;
$$;

-- Refuses in the words of the contract.
CREATE FUNCTION refuse(p_verdict smallint, p_id text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF p_verdict = 1 THEN
        RAISE EXCEPTION 'NOT_FOUND: there is no task %', p_id USING ERRCODE = 'RDQ02';
    ELSIF p_verdict IN (2, 3, 4) THEN
        RAISE EXCEPTION 'STALE_CLAIM: the claim on task % is stale', p_id USING
            ERRCODE = 'RDQ01',
            DETAIL = CASE p_verdict WHEN 3 THEN 'cancelled' WHEN 4 THEN 'expired'
                ELSE 'superseded or resolved' END;
    END IF;
END;
$$;

-- Keeps a claim: its lease ends so long after now. Answers when.
CREATE FUNCTION extend_lease(
    p_id text, p_claim_token bytea, p_lease interval DEFAULT '1 minute',
    p_progress bytea DEFAULT NULL
) RETURNS timestamptz LANGUAGE plpgsql AS $$
DECLARE
    v_answer record;
BEGIN
    SELECT * INTO v_answer FROM extend_batch(
        ARRAY[p_id], ARRAY[generation_of(p_claim_token)], ARRAY[interval_millis(p_lease)],
        ARRAY[NULL::bigint], ARRAY[p_progress], ARRAY[false]
    );
    PERFORM refuse(v_answer.verdict, p_id);
    RETURN to_timestamp(v_answer.lease_expires_at / 1000.0);
END;
$$;

-- Ends a claim; answers whether an earlier call had done so.
CREATE FUNCTION resolve_one(
    p_id text, p_claim_token bytea, p_call integer, p_kind integer, p_delay interval,
    p_result bytea, p_error_type text, p_message text, p_detail text, p_stack text
) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    v_answer record;
BEGIN
    SELECT * INTO v_answer FROM resolve_batch(
        ARRAY[p_id], ARRAY[generation_of(p_claim_token)], ARRAY[p_call::smallint],
        ARRAY[p_kind::smallint], ARRAY[false], ARRAY[p_kind IN (0, 3)], ARRAY[NULL::bigint],
        ARRAY[coalesce(interval_millis(p_delay), 0)], ARRAY[nullif(p_result, '')],
        ARRAY[p_error_type], ARRAY[p_message], ARRAY[p_detail],
        ARRAY[p_stack], ARRAY[NULL::bytea]
    );
    PERFORM refuse(v_answer.verdict, p_id);
    IF v_answer.due_in < 1500 THEN
        PERFORM tell(v_answer.queue, v_answer.due_in);
    END IF;
    RETURN v_answer.verdict = 5;
END;
$$;

-- The task succeeded.
CREATE FUNCTION complete(p_id text, p_claim_token bytea, p_result bytea DEFAULT '')
    RETURNS boolean LANGUAGE sql VOLATILE
    RETURN resolve_one(p_id, p_claim_token, 1, 0, NULL, p_result, NULL, NULL, NULL, NULL);

-- The attempt failed, and the task is due again after the delay.
CREATE FUNCTION reschedule(
    p_id text, p_claim_token bytea, p_delay interval, p_error_type text DEFAULT '',
    p_message text DEFAULT '', p_detail text DEFAULT '', p_stack text DEFAULT ''
) RETURNS boolean LANGUAGE sql VOLATILE
    RETURN resolve_one(
        p_id, p_claim_token, 2, 1, p_delay, NULL, p_error_type, p_message, p_detail, p_stack);

-- The attempt failed for good: the task is a dead letter.
CREATE FUNCTION dead_letter(
    p_id text, p_claim_token bytea, p_error_type text DEFAULT '', p_message text DEFAULT '',
    p_detail text DEFAULT '', p_stack text DEFAULT ''
) RETURNS boolean LANGUAGE sql VOLATILE
    RETURN resolve_one(
        p_id, p_claim_token, 3, 2, NULL, NULL, p_error_type, p_message, p_detail, p_stack);

-- The task goes back unspent.
CREATE FUNCTION release(p_id text, p_claim_token bytea, p_delay interval DEFAULT NULL)
    RETURNS boolean LANGUAGE sql VOLATILE
    RETURN resolve_one(p_id, p_claim_token, 5, 3, p_delay, NULL, NULL, NULL, NULL, NULL);
