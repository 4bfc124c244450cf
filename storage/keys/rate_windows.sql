-- Recent sends of producers. `now`: NULL means the clock of the database.

-- name: take
-- params: now, account_ids, producer_ids, limits, window_seconds, needed, per_slot, returned, returned_slots
-- Permits for producers, in the order of the arrays, which must be that of their keys
-- (functions/rates.sql).
SELECT granted, slots, lease_ms, hold_ms
FROM take_permits($1::timestamptz, $2::text[], $3::text[], $4::int[], $5::int[], $6::int[],
  $7::float8[], $8::int[], $9::bigint[])

-- name: forget
-- params: now, limit
-- Deletes at most `limit` expired windows, and returns one row for each. Skips windows in use.
-- MATERIALIZED, or the plan may evaluate the subquery for each row, with other results.
WITH old AS MATERIALIZED (
  SELECT account_id, producer_id FROM rate_windows
  WHERE (last_slot + 105) * window_seconds
    < 100 * extract(epoch FROM coalesce($1::timestamptz, present()))
  LIMIT $2
  FOR UPDATE SKIP LOCKED
)
DELETE FROM rate_windows AS w USING old
WHERE w.account_id = old.account_id AND w.producer_id = old.producer_id
RETURNING 1
