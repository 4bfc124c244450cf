-- What there is to do in the background, before anybody looks for what of it is due.

-- name: find
-- params:
-- The names of the kinds of which there is any (functions/chores.sql).
SELECT find_chores()
