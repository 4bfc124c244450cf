-- Events of accounts: recordings, and events of workers. functions/events.sql notes those of messages.

-- name: list
-- params:
-- The accounts that record, with the numbers of their recordings.
SELECT account_id, recording_id FROM event_recordings

-- name: start
-- params: account_id, seconds, most
-- Starts a recording, or keeps it for so many seconds at least; NULL: until it is stopped. Returns
-- its number; no row if so many other accounts record.
INSERT INTO event_recordings AS r (account_id, ends_at)
SELECT $1, coalesce(present() + $2::float8 * interval '1 second', 'infinity')
WHERE (SELECT count(*) FROM event_recordings AS o WHERE o.account_id <> $1) < $3
ON CONFLICT ON CONSTRAINT event_recordings_key DO UPDATE
SET ends_at = greatest(r.ends_at, excluded.ends_at)
RETURNING recording_id

-- name: ended
-- params:
-- The accounts whose recordings nobody has read for long.
SELECT account_id FROM event_recordings WHERE ends_at <= present() ORDER BY account_id

-- name: stop
-- params: account_id
-- Stops the recording of an account, or all (NULL). Returns the accounts.
DELETE FROM event_recordings WHERE $1::text IS NULL OR account_id = $1 RETURNING account_id

-- name: watch
-- params: table, is_wanted
-- Creates or drops the triggers of a table; see the function.
SELECT watch_table($1, $2)

-- name: note
-- params: account_ids, events
-- Notes events, as JSON texts, of those of their accounts that record.
SELECT note_event(e.account_id, e.event::json)
FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS e (account_id, event, place)
WHERE e.account_id IN (SELECT r.account_id FROM event_recordings AS r)
ORDER BY e.place
