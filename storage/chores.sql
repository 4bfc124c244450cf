-- Kinds of background work, before a search for due work.

-- name: find
-- params:
-- The names of the kinds of which any exists (functions/chores.sql).
SELECT find_chores()
