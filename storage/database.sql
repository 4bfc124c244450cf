-- Planner settings for the rest of one transaction.

-- name: probe_by_key
-- params:
-- Prevents that a plan made for an empty table becomes a scan of a full one.
SELECT set_config('enable_seqscan', 'off', true),
  set_config('enable_bitmapscan', 'off', true),
  set_config('plan_cache_mode', 'force_custom_plan', true)

-- name: alone
-- params: lock_class, lock
-- Waits until the other transactions that hold this lock have ended.
SELECT pg_advisory_xact_lock($1::int, $2::int)
