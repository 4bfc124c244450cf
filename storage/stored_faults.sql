-- Rules for faults on purpose: one JSON setting, {"last": the last number, "rules": [...]}.

-- name: read
-- params: setting_name
-- Returns the rules, NULL if there never was one, and the present in seconds since the epoch.
SELECT (SELECT s.value::text FROM settings AS s WHERE s.setting_name = $1) AS stored,
  extract(epoch FROM present())::float8 AS now

-- name: lock
-- params: setting_name
-- Locks the rules until the transaction ends.
INSERT INTO settings (setting_name, value) VALUES ($1, '{}')
ON CONFLICT ON CONSTRAINT settings_key DO UPDATE SET value = settings.value

-- name: write
-- params: setting_name, value
-- Replaces the locked rules.
UPDATE settings SET value = $2::text::jsonb WHERE setting_name = $1

-- name: show_at
-- params: now, queue_id, sequences, milliseconds
-- Makes messages that nobody has received visible after so many milliseconds from now.
UPDATE messages AS m
SET visible_at = coalesce($1::timestamptz, present())
  + ($4::int[])[array_position($3::bigint[], m.sequence)] * interval '1 millisecond'
WHERE m.queue_id = $2::int AND m.sequence = ANY($3::bigint[]) AND m.receive_count = 0
