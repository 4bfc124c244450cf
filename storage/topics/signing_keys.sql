-- name: lock_signing_keys
-- params: key_class, key
-- Serializes changes of the keys until the transaction ends, even without a row to lock.
SELECT pg_advisory_xact_lock($1::int, $2::int)

-- name: read_signing_keys
-- params: setting_name
-- All keys as one JSON list, or no row. They share the table of settings but have their own
-- statements, so that output of settings never contains a private key.
SELECT value::text FROM settings WHERE setting_name = $1

-- name: write_signing_keys
-- params: setting_name, value
-- Replaces the list.
INSERT INTO settings (setting_name, value) VALUES ($1, ($2::text)::jsonb)
ON CONFLICT ON CONSTRAINT settings_key DO UPDATE SET value = excluded.value
