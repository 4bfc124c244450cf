-- name: server_clock
-- params:
-- For the check of the clocks: how far this machine and the database are apart.
SELECT clock_timestamp();
