-- The secret of receipt handles. It shares the table of settings but has its own statements, so
-- that output of settings never contains it.

-- name: offer_receipt_secret
-- params: setting_name, secret
-- Stores the first secret offered; later ones change nothing. Waits for one being stored, so that a
-- later read finds it. Existing queues mean that receivers may hold handles made without a secret.
INSERT INTO settings (setting_name, value)
SELECT $1, jsonb_build_object('secret', $2::text,
  'made_at', floor(date_part('epoch', clock_timestamp())),
  'is_upgrade', EXISTS (SELECT 1 FROM queues))
ON CONFLICT ON CONSTRAINT settings_key DO NOTHING

-- name: read_receipt_secret
-- params: setting_name
-- The secret in hexadecimal digits, the second of its creation, and whether queues existed then.
SELECT value ->> 'secret', (value ->> 'made_at')::bigint, (value ->> 'is_upgrade')::boolean
FROM settings WHERE setting_name = $1
