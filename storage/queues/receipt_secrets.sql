-- The secret of receipt handles. It shares the table of settings, but has statements of its own:
-- what prints settings must not come across it.

-- name: offer_receipt_secret
-- params: setting_name, secret
-- Stores the first secret that is offered; any other changes nothing. Waits for one that is being
-- stored: whoever reads afterwards finds it. Queues that are there already say that their
-- messages may be in the hands of receivers whose handles were made without a secret.
INSERT INTO settings (setting_name, value)
SELECT $1, jsonb_build_object('secret', $2::text,
  'made_at', floor(date_part('epoch', clock_timestamp())),
  'is_upgrade', EXISTS (SELECT 1 FROM queues))
ON CONFLICT ON CONSTRAINT settings_key DO NOTHING

-- name: read_receipt_secret
-- params: setting_name
-- The secret in hexadecimal digits, the second in which it was made, and whether queues were there.
SELECT value ->> 'secret', (value ->> 'made_at')::bigint, (value ->> 'is_upgrade')::boolean
FROM settings WHERE setting_name = $1
