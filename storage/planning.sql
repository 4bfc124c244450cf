-- Settings of the planner for the rest of one transaction.

-- name: probe_by_key
-- params:
-- A plan made while a table looked empty must not become a scan of a full one.
SELECT set_config('enable_seqscan', 'off', true),
  set_config('enable_bitmapscan', 'off', true),
  set_config('plan_cache_mode', 'force_custom_plan', true)
