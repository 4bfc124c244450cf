-- name: notify
-- params: channel, payload
-- A statement instead of NOTIFY, because that takes no parameters.
SELECT pg_notify($1, $2)

-- name: hold_time
-- params: lock_class, lock
-- Shows processes that start, as long as this session lasts, that its process keeps the time.
SELECT pg_advisory_lock_shared($1::int, $2::int)
