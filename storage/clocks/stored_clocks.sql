-- The test clock, as JSON settings that all processes share.

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
