-- name: notify
-- params: channel, payload
-- A statement instead of NOTIFY, because that takes no parameters.
SELECT pg_notify($1, $2)
