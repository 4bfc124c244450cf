-- The lower bound of the present (migration 0007).

-- name: keep_present
-- params: lock_class, lock, at_least
-- Raises the mark to the present, or to `at_least` if that is later, and returns the server's clock
-- and the present. One process at a time writes the mark, so that it never sinks; the others only
-- read and ignore `at_least`. A value more than a day ahead is ignored, too: an administrator has
-- lowered the mark. The commit does not wait for the disk: a crash lowers the mark by at most 1 s.
WITH held AS MATERIALIZED (
  SELECT pg_try_advisory_xact_lock($1::int, $2::int) AS is_mine
), seen AS MATERIALIZED (
  -- The clock comes last: a server that pauses between the two reads has no clock that lags.
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
