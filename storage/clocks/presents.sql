-- What keeps the present from going back (migration 0007).

-- name: keep_present
-- params: lock_class, lock, at_least
-- Brings the mark up to the present, or to `at_least` if that is later, and answers what the
-- server's clock says and what the present is now. One process at a time writes the mark, so that
-- it never sinks; the others only look. The commit does not wait for the disk: a crash takes the
-- mark back by a second at most.
WITH held AS MATERIALIZED (
  SELECT pg_try_advisory_xact_lock($1::int, $2::int) AS is_mine
), seen AS MATERIALIZED (
  SELECT clock_timestamp() AS clock, greatest(present(), $3::timestamptz) AS present, held.is_mine
  FROM held
)
SELECT seen.clock, seen.present,
  CASE WHEN seen.is_mine
    THEN setval('clock_mark', (extract(epoch FROM seen.present) * 1000000)::bigint) END,
  set_config('synchronous_commit', 'off', true)
FROM seen
