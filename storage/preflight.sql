-- name: server_clock
-- params:
-- For the check of the clocks: how far this machine and the database are apart.
SELECT clock_timestamp();

-- name: backend
-- params:
-- The process that serves this connection. A pooler in between has told the client another one.
SELECT pg_backend_pid();

-- name: mark_session
-- params: mark
-- Leaves a mark on the session, which stays with it and with no other one.
SELECT set_config('queuegate.session', $1, FALSE);

-- name: session
-- params:
-- What is left of a session in a later transaction: its mark, and what it was begun with.
SELECT current_setting('queuegate.session', TRUE) AS mark, current_setting('search_path') AS path;
