-- The offset and the mark of the present (migrations 0007 and 0028), which all processes share.
-- The test clock, as JSON settings that all processes share.

-- name: read_present
-- params: lock_class, lock, kept
-- Returns the server's clock, the offset of the present and the mark before this statement. Raises
-- the mark to `kept`, but not past what the clock and the offset allow: an administrator may have
-- taken both back. One process at a time writes the mark, so that it never sinks. The commit does
-- not wait for the disk: a crash lowers the mark by at most 1 s.
WITH held AS MATERIALIZED (
  SELECT pg_try_advisory_xact_lock($1::int, $2::int) AS is_mine
), seen AS MATERIALIZED (
  SELECT held.is_mine, server_clock() AS clock,
    coalesce(pg_sequence_last_value('clock_offset'), 0) AS offset_us,
    to_timestamp(pg_sequence_last_value('clock_mark') / float8 '1e6') AS mark
  FROM held
)
SELECT seen.clock, seen.offset_us, seen.mark,
  CASE WHEN seen.is_mine AND $3::timestamptz > coalesce(seen.mark, '-infinity')
      AND $3 < seen.clock + seen.offset_us * interval '1 microsecond' + interval '1 second'
    THEN setval('clock_mark', (extract(epoch FROM $3) * 1000000)::bigint) END,
  set_config('synchronous_commit', 'off', true)
FROM seen

-- name: change_offset
-- params: lock_class, lock, seen_us, offset_us
-- Changes the offset for all processes, if it is still `seen_us`.
WITH held AS MATERIALIZED (
  SELECT pg_advisory_xact_lock($1::int, $2::int)
)
SELECT CASE WHEN coalesce(pg_sequence_last_value('clock_offset'), 0) = $3::bigint
  THEN setval('clock_offset', $4::bigint) = $4 END AS is_changed
FROM held

-- name: is_time_kept
-- params: lock_class, lock
-- Looks for the session of a process that listens (hold_time of notifications.sql).
SELECT EXISTS (SELECT FROM pg_locks AS l JOIN pg_database AS d ON d.oid = l.database
  WHERE l.locktype = 'advisory' AND d.datname = current_database()
    AND l.classid = $1::int AND l.objid = $2::int AND l.objsubid = 2) AS is_kept

-- name: read_clock
-- params: ahead_name, moves_name, frozen_name, accounts_name
-- Returns the seconds ahead, the number of moves, the frozen clock and the clocks of accounts; NULL
-- if the last two were never set.
SELECT coalesce(max(s.value::text) FILTER (WHERE s.setting_name = $1), '0')::float8 AS ahead_seconds,
  coalesce(max(s.value::text) FILTER (WHERE s.setting_name = $2), '0')::bigint AS moves,
  max(s.value::text) FILTER (WHERE s.setting_name = $3) AS frozen,
  max(s.value::text) FILTER (WHERE s.setting_name = $4) AS accounts
FROM settings AS s
WHERE s.setting_name IN ($1, $2, $3, $4)

-- name: hold_clock
-- params: ahead_name
-- Locks the clock until the transaction ends.
INSERT INTO settings (setting_name, value) VALUES ($1, '0')
ON CONFLICT ON CONSTRAINT settings_key DO UPDATE SET value = settings.value

-- name: write_settings
-- params: setting_names, values
-- Sets values, given as JSON texts.
INSERT INTO settings (setting_name, value)
SELECT i.setting_name, i.value::jsonb FROM unnest($1::text[], $2::text[]) AS i (setting_name, value)
ON CONFLICT ON CONSTRAINT settings_key DO UPDATE SET value = excluded.value
