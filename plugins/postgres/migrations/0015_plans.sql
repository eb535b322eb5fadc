-- What no setting of a session, no statistics and no table size may change: every function that is
-- called from outside runs in this schema, by indexes and nested loops, and so does what it calls. A
-- queue's statistics are always stale (it is full now and empty a minute later), and a plan that
-- reads the whole table once is one too many. Plans are made once for a session and reused. Servers
-- call the inner functions from sessions that have these settings, and need not set them each time.
DO $$
DECLARE
    v_function regprocedure;
    v_setting text;
BEGIN
    FOR v_function IN
        SELECT oid::regprocedure FROM pg_proc
        WHERE pronamespace = current_schema::regnamespace AND proname IN (
            'enqueue', 'claim_due', 'extend_lease', 'complete', 'reschedule', 'dead_letter',
            'release'
        )
    LOOP
        FOREACH v_setting IN ARRAY ARRAY[
            'search_path FROM CURRENT', 'plan_cache_mode = force_generic_plan', 'jit = off',
            'enable_seqscan = off', 'enable_bitmapscan = off', 'enable_hashjoin = off',
            'enable_mergejoin = off', 'enable_nestloop = on', 'enable_indexscan = on',
            'enable_tidscan = on'
        ] LOOP
            EXECUTE format('ALTER FUNCTION %s SET %s', v_function, v_setting);
        END LOOP;
    END LOOP;
END;
$$;
