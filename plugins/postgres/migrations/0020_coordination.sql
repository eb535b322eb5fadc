-- Coordination: streams and the offsets of those who read them, locks, records; and the functions by
-- which an application publishes, notifies and enqueues into an outbox within its own transaction.
-- SCHEMA.md says what others may rely on.

-- One row a stream, kept for ever, so that its offsets only grow.
CREATE TABLE streams (
    -- What its events are stored under.
    id bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
    -- Whoever publishes holds this row until the commit: an offset becomes visible after every lower
    -- one, and what is rolled back leaves none out.
    last_offset bigint NOT NULL,
    name text COLLATE "C" PRIMARY KEY
) WITH (
    -- Room for the next counts beside a row: they touch no index.
    fillfactor = 20,
    autovacuum_vacuum_scale_factor = 0.05,
    autovacuum_vacuum_threshold = 500,
    autovacuum_vacuum_cost_delay = 0
);

-- Keys and payloads are bytes: text would not take all of them.
CREATE TABLE events (
    stream bigint NOT NULL,
    event_offset bigint NOT NULL,
    created_at bigint NOT NULL,
    key bytea,
    payload bytea NOT NULL,
    PRIMARY KEY (stream, event_offset)
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);

-- By name, so that a consumer's mark waits for no publisher.
CREATE TABLE offsets (
    saved bigint NOT NULL,
    stream text COLLATE "C" NOT NULL,
    consumer text COLLATE "C" NOT NULL,
    PRIMARY KEY (stream, consumer)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);

-- One row for each name that was ever held, kept for ever, so that generations only grow.
CREATE TABLE locks (
    generation bigint NOT NULL,
    -- When the hold ends or ended; 0 once it was released.
    expires_at bigint NOT NULL,
    name text COLLATE "C" PRIMARY KEY,
    owner text COLLATE "C" NOT NULL
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);

-- Records are numbered as they are made, so that a list knows which came after it began.
CREATE SEQUENCE record_numbers;

-- One row for each key that ever had a value, kept for ever, so that revisions only grow. A removed
-- record has no number and no value.
CREATE TABLE records (
    revision bigint NOT NULL,
    made bigint,
    updated_at bigint NOT NULL,
    space text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    value bytea,
    PRIMARY KEY (space, name)
) WITH (fillfactor = 85, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);

-- What is there; by `made` and not by `value`, so that a new value touches no index.
CREATE INDEX records_there ON records (space, name) WHERE made IS NOT NULL;

-- Appends events in the batch's order. Streams are counted in the order of their names, so that two
-- batches wait for each other but not in a circle; the clock is read once a stream is had.
CREATE FUNCTION publish_batch(p_streams text[], p_keys bytea[], p_payloads bytea[])
RETURNS TABLE (n bigint, event_offset bigint) LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    WITH item AS MATERIALIZED (
        SELECT i.stream, i.n, count(*) OVER same AS total,
            row_number() OVER (PARTITION BY i.stream ORDER BY i.n) AS place
        FROM unnest(p_streams) WITH ORDINALITY AS i (stream, n) WINDOW same AS (PARTITION BY i.stream)
    ),
    counted AS (
        INSERT INTO streams AS s (name, last_offset)
        SELECT i.stream, count(*) FROM item i GROUP BY i.stream ORDER BY i.stream COLLATE "C"
        ON CONFLICT (name) DO UPDATE SET last_offset = s.last_offset + excluded.last_offset
        RETURNING s.id, s.last_offset, s.name
    ),
    placed AS MATERIALIZED (
        SELECT i.n, c.id, c.last_offset - i.total + i.place AS event_offset
        FROM item i JOIN counted c ON c.name = i.stream
    ),
    added AS (
        INSERT INTO events (stream, event_offset, created_at, key, payload)
        SELECT p.id, p.event_offset, clock_ms(), e.key, e.payload
        FROM placed p
        JOIN unnest(p_keys, p_payloads) WITH ORDINALITY AS e (key, payload, n) ON e.n = p.n
    )
    SELECT p.n, p.event_offset FROM placed p;
END;
$$;

-- Saves offsets of a batch without two of one stream and consumer; answers what is saved then.
CREATE FUNCTION save_offsets_batch(p_streams text[], p_consumers text[], p_offsets bigint[])
RETURNS TABLE (stream text, consumer text, saved bigint) LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    INSERT INTO offsets AS o (stream, consumer, saved)
    SELECT i.stream, i.consumer, greatest(i.saved, 0)
    FROM unnest(p_streams, p_consumers, p_offsets) AS i (stream, consumer, saved)
    ORDER BY i.stream COLLATE "C", i.consumer COLLATE "C"
    ON CONFLICT (stream, consumer) DO UPDATE SET saved = greatest(o.saved, excluded.saved)
    RETURNING o.stream, o.consumer, o.saved;
END;
$$;

-- One step of a trim: at most so many of the oldest events up to the horizon.
CREATE FUNCTION trim_step(p_stream text, p_horizon bigint, p_limit bigint)
RETURNS TABLE (removed bigint, more boolean) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_stream bigint := (SELECT id FROM streams WHERE name = p_stream);
    -- The last one that goes, and whether one is left behind it.
    v_last bigint;
    v_more boolean := false;
BEGIN
    SELECT max(o.event_offset) FILTER (WHERE o.n <= p_limit), count(*) > p_limit
    INTO v_last, v_more
    FROM (
        SELECT e.event_offset, row_number() OVER (ORDER BY e.event_offset) AS n
        FROM events e WHERE e.stream = v_stream AND e.event_offset <= p_horizon
        ORDER BY e.event_offset LIMIT p_limit + 1
    ) AS o;
    DELETE FROM events e WHERE e.stream = v_stream AND e.event_offset <= v_last;
    GET DIAGNOSTICS removed = ROW_COUNT;
    more := v_more;
    RETURN NEXT;
END;
$$;

-- Acquires a lock, or answers the hold that its owner has already; nothing if somebody else has it.
CREATE FUNCTION try_lock(p_name text, p_owner text, p_ttl bigint)
RETURNS TABLE (owner text, generation bigint, expires_at bigint, remaining bigint)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_lock locks;
    v_now bigint;
BEGIN
    -- Who only finds it held writes nothing and waits for nobody.
    SELECT * INTO v_lock FROM locks WHERE name = p_name;
    v_now := clock_ms();
    IF v_lock.expires_at > v_now THEN
        IF v_lock.owner = p_owner THEN
            RETURN QUERY SELECT v_lock.owner, v_lock.generation, v_lock.expires_at,
                v_lock.expires_at - v_now;
        END IF;
        RETURN;
    END IF;
    INSERT INTO locks (generation, expires_at, name, owner) VALUES (0, 0, p_name, '')
    ON CONFLICT DO NOTHING;
    SELECT * INTO v_lock FROM locks WHERE name = p_name FOR UPDATE;
    -- After the row was waited for.
    v_now := clock_ms();
    IF v_lock.expires_at <= v_now THEN
        UPDATE locks l SET owner = p_owner, generation = l.generation + 1,
            expires_at = later(v_now, p_ttl)
        WHERE l.name = p_name RETURNING * INTO v_lock;
    ELSIF v_lock.owner <> p_owner THEN
        RETURN;
    END IF;
    RETURN QUERY SELECT v_lock.owner, v_lock.generation, v_lock.expires_at,
        v_lock.expires_at - v_now;
END;
$$;

-- Moves a live hold's end to so long after now. A generation that is NULL means any.
CREATE FUNCTION renew_lock(p_name text, p_owner text, p_generation bigint, p_ttl bigint)
RETURNS TABLE (owner text, generation bigint, expires_at bigint, remaining bigint)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_now bigint;
BEGIN
    PERFORM FROM locks WHERE name = p_name AND owner = p_owner FOR UPDATE;
    v_now := clock_ms();
    RETURN QUERY
    UPDATE locks l SET expires_at = later(v_now, p_ttl)
    WHERE l.name = p_name AND l.owner = p_owner AND l.expires_at > v_now
        AND l.generation = coalesce(p_generation, l.generation)
    RETURNING l.owner, l.generation, l.expires_at, l.expires_at - v_now;
END;
$$;

-- Ends a live hold, and says whether there was one.
CREATE FUNCTION release_lock(p_name text, p_owner text, p_generation bigint) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    v_now bigint;
BEGIN
    PERFORM FROM locks WHERE name = p_name AND owner = p_owner FOR UPDATE;
    v_now := clock_ms();
    UPDATE locks l SET expires_at = 0
    WHERE l.name = p_name AND l.owner = p_owner AND l.expires_at > v_now
        AND l.generation = coalesce(p_generation, l.generation);
    RETURN FOUND;
END;
$$;

-- Changes the records of a batch without two of one key, and answers those that had the revision
-- that was expected. A value that is NULL removes; 0 is expected where there must be none.
CREATE FUNCTION compare_and_set_batch(
    p_spaces text[], p_names text[], p_values bytea[], p_expected bigint[]
) RETURNS TABLE (space text, name text, revision bigint) LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
    -- In one order, so that two batches wait for each other but not in a circle. What has another
    -- revision already waits for nobody.
    PERFORM FROM unnest(p_spaces, p_names, p_expected) AS i (space, name, expected)
    JOIN records r ON r.space = i.space AND r.name = i.name
    WHERE i.expected = CASE WHEN r.made IS NULL THEN 0 ELSE r.revision END
    ORDER BY r.space, r.name FOR UPDATE OF r;
    RETURN QUERY
    WITH item AS MATERIALIZED (
        SELECT * FROM unnest(p_spaces, p_names, p_values, p_expected)
            AS i (space, name, value, expected)
    ),
    made AS (
        -- Of two who make a record at once, the later one waits here, and finds it made.
        INSERT INTO records AS r (space, name, revision, made, updated_at, value)
        SELECT i.space, i.name, 1, nextval('record_numbers'), clock_ms(), i.value
        FROM item i WHERE i.expected = 0 AND i.value IS NOT NULL AND NOT EXISTS (
            SELECT FROM records t WHERE t.space = i.space AND t.name = i.name AND t.made IS NOT NULL
        )
        ORDER BY i.space COLLATE "C", i.name COLLATE "C"
        ON CONFLICT (space, name) DO UPDATE SET revision = r.revision + 1, made = excluded.made,
            updated_at = clock_ms(), value = excluded.value
        WHERE r.made IS NULL
        RETURNING r.space, r.name, r.revision
    ),
    changed AS (
        UPDATE records r SET
            revision = CASE WHEN i.value IS NULL THEN r.revision ELSE r.revision + 1 END,
            made = CASE WHEN i.value IS NULL THEN NULL ELSE r.made END,
            updated_at = clock_ms(),
            value = i.value
        FROM item i
        WHERE i.expected > 0 AND r.space = i.space AND r.name = i.name
            AND r.revision = i.expected AND r.made IS NOT NULL
        RETURNING r.space, r.name, r.revision
    )
    SELECT * FROM made UNION ALL SELECT * FROM changed;
END;
$$;

-- Tells servers, at the commit, that a channel (`c`) was notified or a stream (`s`) has news.
CREATE FUNCTION tell_wake(p_kind text, p_name text) RETURNS void LANGUAGE sql VOLATILE
BEGIN ATOMIC
    SELECT pg_notify(
        'rdq_' || encode(store_id, 'hex'), 'sql' || chr(10) || p_kind || ' ' || p_name
    ) FROM store;
END;

-- Refuses a payload of more than the contract's limit.
CREATE FUNCTION checked_size(p_bytes integer, p_bytes_max integer) RETURNS void
LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    IF p_bytes > p_bytes_max THEN
        RAISE EXCEPTION 'PAYLOAD_TOO_LARGE: % bytes, and % is the limit', p_bytes, p_bytes_max
            USING ERRCODE = 'RDQ04';
    END IF;
END;
$$;

-- Publishes an event in the caller's transaction, and answers its offset.
CREATE FUNCTION publish(p_stream text, p_payload bytea, p_key text DEFAULT NULL) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    v_offset bigint;
BEGIN
    PERFORM checked_name('stream', p_stream, 240), checked_size(octet_length(p_payload), 1048576);
    IF octet_length(p_key) NOT BETWEEN 1 AND 1024 THEN
        RAISE EXCEPTION 'INVALID_NAME: key must be 1 to 1024 bytes' USING ERRCODE = 'RDQ04';
    END IF;
    SELECT p.event_offset INTO v_offset FROM publish_batch(
        ARRAY[p_stream], ARRAY[convert_to(p_key, 'UTF8')], ARRAY[coalesce(p_payload, '')]
    ) AS p;
    PERFORM tell_wake('s', p_stream);
    RETURN v_offset;
END;
$$;

-- Wakes whoever listens to the channel once the caller's transaction commits. No listener gets the
-- payload.
CREATE FUNCTION notify(p_channel text, p_payload text DEFAULT '') RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM checked_name('channel', p_channel, 240), checked_size(octet_length(p_payload), 8000);
    PERFORM tell_wake('c', p_channel);
END;
$$;

-- Enqueues a message into an outbox in the caller's transaction, and answers its id. An id that the
-- outbox has already is the same message.
CREATE FUNCTION outbox_enqueue(
    p_outbox text, p_payload bytea, p_id text DEFAULT NULL, p_headers jsonb DEFAULT NULL,
    p_delay interval DEFAULT NULL
) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    v_id text := checked_name('id', coalesce(p_id, gen_random_uuid()::text), 255);
    v_queue text := '__rdq_outbox:' || checked_name('outbox', p_outbox, 240);
    v_handler text := '__rdq_outbox';
    v_envelope bytea;
    v_answer record;
BEGIN
    PERFORM checked_size(octet_length(p_payload), 1048576);
    -- As a server would have encoded it.
    v_envelope := proto_bytes(2, convert_to(v_id, 'UTF8'))
        || proto_bytes(3, convert_to(v_queue, 'UTF8'))
        || proto_bytes(4, convert_to(v_handler, 'UTF8'))
        || proto_bytes(6, nullif(p_payload, ''))
        || coalesce((
            SELECT string_agg(
                proto_bytes(8, proto_bytes(1, convert_to(h.key, 'UTF8'))
                    || proto_bytes(2, convert_to(h.value, 'UTF8'))), ''::bytea ORDER BY h.key)
            FROM jsonb_each_text(p_headers) AS h
        ), '');
    LOOP
        SELECT * INTO v_answer FROM enqueue_batch(
            ARRAY[v_id], ARRAY[v_queue], ARRAY[v_handler], ARRAY[0],
            ARRAY[NULL::bigint], ARRAY[coalesce(interval_millis(p_delay), 0)],
            ARRAY[NULL::bigint], ARRAY[NULL::bigint], ARRAY[NULL::bigint], ARRAY[v_envelope],
            ARRAY[NULL::bigint], ARRAY[NULL::bigint], ARRAY[NULL::bigint], ARRAY[NULL::bigint],
            ARRAY[0::bigint], ARRAY[0::bigint], ARRAY[0::bigint], ARRAY[NULL::bytea],
            ARRAY[0::bigint], ARRAY[0], ARRAY[NULL::text]
        );
        EXIT WHEN v_answer.verdict < 3;
    END LOOP;
    IF v_answer.verdict = 2 THEN
        RAISE EXCEPTION 'ID_CONFLICT: id % is taken in another queue', v_id
            USING ERRCODE = 'RDQ03';
    END IF;
    IF v_answer.verdict = 0 AND v_answer.due_in < 1500 THEN
        PERFORM tell(v_queue, v_answer.due_in);
    END IF;
    RETURN v_id;
END;
$$;

-- What is forced upon the functions of tasks (0009) is forced upon these: this schema, indexes and
-- nested loops, whatever a session's settings and the statistics say. A batch of events meets no
-- table but by its conflicts, and is joined to itself by hashes.
DO $$
DECLARE
    v_function record;
    v_setting text;
BEGIN
    FOR v_function IN
        SELECT oid::regprocedure AS it, proname = 'publish_batch' AS hashes FROM pg_proc
        WHERE pronamespace = current_schema::regnamespace AND proname IN (
            'publish_batch', 'save_offsets_batch', 'trim_step', 'try_lock', 'renew_lock',
            'release_lock', 'compare_and_set_batch', 'publish', 'notify', 'outbox_enqueue'
        )
    LOOP
        FOREACH v_setting IN ARRAY ARRAY[
            'search_path FROM CURRENT', 'plan_cache_mode = force_generic_plan', 'jit = off',
            'enable_seqscan = off', 'enable_bitmapscan = off', 'enable_mergejoin = off',
            'enable_indexscan = on',
            'enable_hashjoin = ' || v_function.hashes,
            'enable_nestloop = ' || (NOT v_function.hashes)
        ] LOOP
            EXECUTE format('ALTER FUNCTION %s SET %s', v_function.it, v_setting);
        END LOOP;
    END LOOP;
END;
$$;
