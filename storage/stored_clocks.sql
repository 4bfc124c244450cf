-- The lower bound of the present (migration 0007).
-- The test clock, as JSON settings that all processes share.

-- name: keep_present
-- params: lock_class, lock, at_least
-- Raises the mark to the present, or to `at_least` if that is later, and returns the server's clock
-- and the present. One process at a time writes the mark, so that it never sinks; the others only
-- read and ignore `at_least`. A value more than a day ahead is ignored, too: an administrator has
-- lowered the mark. The commit does not wait for the disk: a crash lowers the mark by at most 1 s.
WITH held AS MATERIALIZED (
  SELECT pg_try_advisory_xact_lock($1::int, $2::int) AS is_mine
), seen AS MATERIALIZED (
  -- The clock comes last: a server that pauses between the two reads has no clock that lags.
  SELECT greatest(now.present,
      CASE WHEN held.is_mine AND $3 < now.present + interval '1 day' THEN $3::timestamptz END) AS present,
    server_clock() AS clock, held.is_mine
  FROM held, (SELECT present() AS present OFFSET 0) AS now
)
SELECT seen.clock, seen.present,
  CASE WHEN seen.is_mine
    THEN setval('clock_mark', (extract(epoch FROM seen.present) * 1000000)::bigint) END,
  set_config('synchronous_commit', 'off', true)
FROM seen

-- name: read_clock
-- params: ahead_name, moves_name, frozen_name, accounts_name
-- Returns the seconds ahead, the number of moves, the frozen clock and the clocks of accounts; NULL
-- if the last two were never set.
SELECT coalesce(max(s.value::text) FILTER (WHERE s.setting_name = $1), '0')::float8 AS ahead_seconds,
  coalesce(max(s.value::text) FILTER (WHERE s.setting_name = $2), '0')::bigint AS moves,
  max(s.value::text) FILTER (WHERE s.setting_name = $3) AS frozen,
  max(s.value::text) FILTER (WHERE s.setting_name = $4) AS accounts
FROM settings AS s
WHERE s.setting_name IN ($1, $2, $3, $4)

-- name: hold_clock
-- params: ahead_name
-- Locks the clock until the transaction ends.
INSERT INTO settings (setting_name, value) VALUES ($1, '0')
ON CONFLICT ON CONSTRAINT settings_key DO UPDATE SET value = settings.value

-- name: write_settings
-- params: setting_names, values
-- Sets values, given as JSON texts.
INSERT INTO settings (setting_name, value)
SELECT i.setting_name, i.value::jsonb FROM unnest($1::text[], $2::text[]) AS i (setting_name, value)
ON CONFLICT ON CONSTRAINT settings_key DO UPDATE SET value = excluded.value
