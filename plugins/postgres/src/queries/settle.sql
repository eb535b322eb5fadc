-- The settings of every session. What a server has set to wait for more than its own disk stays.
SELECT
    set_config('search_path', $1, false),
    set_config('statement_timeout', $2, false),
    set_config('lock_timeout', $3, false),
    set_config('idle_in_transaction_session_timeout', $2, false),
    set_config('default_transaction_isolation', 'read committed', false),
    set_config('client_min_messages', 'warning', false),
    -- A queue's statistics are always stale: no plan may rest on them, and every one goes by indexes
    -- and nested loops. Plans are made once for a session and reused.
    set_config('plan_cache_mode', 'force_generic_plan', false),
    set_config('enable_seqscan', 'off', false),
    set_config('enable_bitmapscan', 'off', false),
    set_config('enable_hashjoin', 'off', false),
    set_config('enable_mergejoin', 'off', false),
    set_config('enable_nestloop', 'on', false),
    set_config('enable_indexscan', 'on', false),
    set_config('enable_tidscan', 'on', false),
    set_config('jit', 'off', false),
    set_config(
        'synchronous_commit',
        CASE current_setting('synchronous_commit')
            WHEN 'off' THEN 'on' ELSE current_setting('synchronous_commit')
        END,
        false
    )
