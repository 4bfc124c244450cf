-- name: lock_signing_keys
-- params: key_class, key
-- One process at a time changes the keys, also while there is no row to lock; until the end of the
-- transaction.
SELECT pg_advisory_xact_lock($1::int, $2::int)

-- name: read_signing_keys
-- params: setting_name
-- All keys as one JSON list, or no row. They share the table of settings, but have statements of
-- their own: what prints settings must not come across a private key.
SELECT value::text FROM settings WHERE setting_name = $1

-- name: write_signing_keys
-- params: setting_name, value
-- Replaces the list.
INSERT INTO settings (setting_name, value) VALUES ($1, ($2::text)::jsonb)
ON CONFLICT ON CONSTRAINT settings_key DO UPDATE SET value = excluded.value
