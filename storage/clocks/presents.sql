-- What keeps the present from going back (migration 0007).

-- name: keep_present
-- params: lock_class, lock, at_least
-- Brings the mark up to the present, or to `at_least` if that is later, and answers what the
-- server's clock says and what the present is now. One process at a time writes the mark, so that
-- it never sinks; the others only look, and their `at_least` does not count. Neither does one that is
-- a day ahead: an administrator has taken the mark back. The commit does not wait for the disk: a
-- crash takes the mark back by a second at most.
WITH held AS MATERIALIZED (
  SELECT pg_try_advisory_xact_lock($1::int, $2::int) AS is_mine
), seen AS MATERIALIZED (
  -- The clock comes last: a server that stands still between the two has no clock that is behind.
  SELECT greatest(now.present,
      CASE WHEN held.is_mine AND $3 < now.present + interval '1 day' THEN $3::timestamptz END) AS present,
    server_clock() AS clock, held.is_mine
  FROM held, (SELECT present() AS present OFFSET 0) AS now
)
SELECT seen.clock, seen.present,
  CASE WHEN seen.is_mine
    THEN setval('clock_mark', (extract(epoch FROM seen.present) * 1000000)::bigint) END,
  set_config('synchronous_commit', 'off', true)
FROM seen
