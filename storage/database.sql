-- Planner settings for the rest of one transaction.

-- name: probe_by_key
-- params:
-- Prevents that a plan made for an empty table becomes a scan of a full one.
SELECT set_config('enable_seqscan', 'off', true),
  set_config('enable_bitmapscan', 'off', true),
  set_config('plan_cache_mode', 'force_custom_plan', true)

-- name: alone
-- params: lock_class, lock, patience, patience_with_others
-- Waits until the other transactions that hold this lock have ended. 55P03 if that takes longer than
-- `patience`, or later another lock longer than `patience_with_others`.
SELECT set_config('lock_timeout', $3, true), pg_advisory_xact_lock($1::int, $2::int),
  set_config('lock_timeout', $4, true)
