-- name: read_setting
-- params: setting_name
-- One value as JSON text, or no row.
SELECT value::text FROM settings WHERE setting_name = $1

-- name: write_setting
-- params: setting_name, value
-- Sets one value, given as JSON text.
INSERT INTO settings (setting_name, value) VALUES ($1, ($2::text)::jsonb)
ON CONFLICT ON CONSTRAINT settings_key DO UPDATE SET value = excluded.value
