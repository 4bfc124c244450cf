-- name: hold_snapshot
-- params:
-- Takes a snapshot and a transaction id: an open transaction that ran this holds vacuum back, as a dump or
-- a forgotten session does.
SELECT pg_current_xact_id()::text
