-- Small facts that all processes share, as JSON.

-- name: read_clock
-- params: ahead_name, moves_name
-- How far the clock stands ahead, and how often it was moved.
SELECT coalesce(max(s.value::text) FILTER (WHERE s.setting_name = $1), '0')::float8 AS ahead_seconds,
  coalesce(max(s.value::text) FILTER (WHERE s.setting_name = $2), '0')::bigint AS moves
FROM settings AS s
WHERE s.setting_name IN ($1, $2)

-- name: hold_clock
-- params: ahead_name
-- Holds the clock to the end of the transaction: nobody else moves it until then.
INSERT INTO settings (setting_name, value) VALUES ($1, '0')
ON CONFLICT ON CONSTRAINT settings_key DO UPDATE SET value = settings.value

-- name: write_setting
-- params: setting_name, value
-- Sets one value, given as JSON text.
INSERT INTO settings (setting_name, value) VALUES ($1, ($2::text)::jsonb)
ON CONFLICT ON CONSTRAINT settings_key DO UPDATE SET value = excluded.value
