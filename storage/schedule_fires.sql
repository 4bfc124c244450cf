-- Firing schedules: due schedules and their new state.
-- Failed invocations of schedules to repeat.

-- name: look
-- params: now, account_ids, are_chosen
-- Returns true if a schedule or a repeated invocation is due, and the seconds until the next one
-- after that, for these accounts or for all others (storage.queries): two probes of a partial index
-- and two of another.
WITH clock AS MATERIALIZED (
  SELECT coalesce($1::timestamptz, present()) AS now
)
SELECT
  EXISTS (
    SELECT FROM schedules AS s
    WHERE s.is_active AND s.due_at IS NOT NULL AND s.due_at <= (SELECT clock.now FROM clock)
      AND (s.account_id = ANY($2::text[])) = $3::boolean
  ) OR EXISTS (
    SELECT FROM schedule_invocations AS i WHERE i.due_at <= (SELECT clock.now FROM clock)
      AND (i.account_id = ANY($2::text[])) = $3::boolean
  ) AS is_due,
  date_part('epoch', least(
    (SELECT s.due_at FROM schedules AS s
     WHERE s.is_active AND s.due_at IS NOT NULL AND s.due_at > (SELECT clock.now FROM clock)
       AND (s.account_id = ANY($2::text[])) = $3::boolean
     ORDER BY s.due_at LIMIT 1),
    (SELECT i.due_at FROM schedule_invocations AS i
     WHERE i.due_at > (SELECT clock.now FROM clock)
       AND (i.account_id = ANY($2::text[])) = $3::boolean
     ORDER BY i.due_at LIMIT 1)) - clock.now) AS next_in
FROM clock

-- name: claim
-- params: now, limit, most_bytes, account_ids, are_chosen
-- Locks the due schedules to the end of the transaction, the most overdue first; skips locked ones.
-- Schedules behind more than most_bytes of targets are locked but not returned: the next claim gets
-- them. Columns in the order of `ClaimedSchedule`.
SELECT s.schedule_id, s.account_id, s.region, g.group_name, s.schedule_name, s.timing, s.target,
  s.catchup, s.catchup_limit, s.failure_threshold, s.deletes_itself, s.window_seconds, s.starts_at,
  s.ends_at, s.max_attempts, s.max_age_seconds, s.dead_letter, s.failure_count, s.next_fire_at,
  s.due_at, s.claimed_at
FROM (
  SELECT d.*, clock.now AS claimed_at,
    sum(d.target_bytes) OVER (ORDER BY d.due_at, d.schedule_id) - d.target_bytes AS bytes_before
  FROM (SELECT coalesce($1::timestamptz, present()) AS now OFFSET 0) AS clock,
  LATERAL (
    SELECT o.* FROM schedules AS o
    WHERE o.is_active AND o.due_at IS NOT NULL AND o.due_at <= clock.now
      AND (o.account_id = ANY($4::text[])) = $5::boolean
    ORDER BY o.due_at, o.schedule_id LIMIT $2
    FOR UPDATE SKIP LOCKED) AS d) AS s
LEFT JOIN schedule_groups AS g ON g.group_id = s.group_id
WHERE s.bytes_before < $3
ORDER BY s.due_at, s.schedule_id

-- name: advance
-- params: at, schedule_ids, next_fire_ats, due_ats, are_active, failure_counts, last_errors, fired_counts, skipped_counts, last_scheduled_fors
-- Stores the new state of fired schedules. last_scheduled_fors NULL: nothing was sent, and its
-- columns stay. By an array of keys and not by a join alone: planned on an empty table, a join
-- reads all of a full one.
UPDATE schedules AS s
SET next_fire_at = i.next_fire_at, due_at = i.due_at, is_active = i.is_active,
  failure_count = i.failure_count, last_error = i.last_error,
  fired_count = s.fired_count + i.fired_count, skipped_count = s.skipped_count + i.skipped_count,
  last_fired_at = CASE WHEN i.scheduled_for IS NULL THEN s.last_fired_at ELSE $1 END,
  last_scheduled_for = coalesce(i.scheduled_for, s.last_scheduled_for)
FROM unnest($2::bigint[], $3::timestamptz[], $4::timestamptz[], $5::boolean[], $6::int[],
            $7::text[], $8::int[], $9::int[], $10::timestamptz[])
  AS i (schedule_id, next_fire_at, due_at, is_active, failure_count, last_error, fired_count,
    skipped_count, scheduled_for)
WHERE s.schedule_id = i.schedule_id AND s.schedule_id = ANY($2::bigint[])

-- name: remove
-- params: schedule_ids
-- Removes schedules after their last time.
DELETE FROM schedules AS s WHERE s.schedule_id = ANY($1::bigint[])

-- name: insert
-- params: at, schedule_ids, account_ids, regions, group_names, schedule_names, scheduled_fors, execution_ids, attempt_counts, max_attempts, ages, delays, targets, dead_letters
-- Ages and delays are seconds from `at`: the end of repetitions, and the next attempt.
INSERT INTO schedule_invocations (schedule_id, account_id, region, group_name, schedule_name,
  scheduled_for, execution_id, attempt_count, max_attempts, expires_at, due_at, created_at, target,
  dead_letter)
SELECT i.schedule_id, i.account_id, i.region, i.group_name, i.schedule_name, i.scheduled_for,
  i.execution_id, i.attempt_count, i.max_attempts, $1::timestamptz + i.age * interval '1 second',
  $1 + i.delay * interval '1 second', $1, i.target::json, i.dead_letter::json
FROM unnest($2::bigint[], $3::text[], $4::text[], $5::text[], $6::text[], $7::timestamptz[],
            $8::uuid[], $9::int[], $10::int[], $11::int[], $12::float8[], $13::text[], $14::text[])
  AS i (schedule_id, account_id, region, group_name, schedule_name, scheduled_for, execution_id,
    attempt_count, max_attempts, age, delay, target, dead_letter)

-- name: claim_invocations
-- params: now, limit, account_ids, are_chosen
-- Locks the due invocations, the most overdue first; skips locked ones. Columns in the order of
-- `Invocation` and, within it, `Fire`.
SELECT i.invocation_id, i.schedule_id, i.account_id, i.region, i.group_name, i.schedule_name,
  i.target, i.scheduled_for, i.execution_id::text AS execution_id, i.attempt_count, i.max_attempts,
  i.dead_letter, i.expires_at, clock.now AS claimed_at
FROM (SELECT coalesce($1::timestamptz, present()) AS now OFFSET 0) AS clock,
LATERAL (
  SELECT d.* FROM schedule_invocations AS d
  WHERE d.due_at <= clock.now AND (d.account_id = ANY($3::text[])) = $4::boolean
  ORDER BY d.due_at, d.invocation_id LIMIT $2
  FOR UPDATE SKIP LOCKED) AS i
ORDER BY i.due_at, i.invocation_id

-- name: postpone
-- params: at, invocation_ids, delays
-- Records a failed attempt; the next one is so many seconds from `at`.
UPDATE schedule_invocations AS v
SET attempt_count = v.attempt_count + 1,
  due_at = $1::timestamptz + i.delay * interval '1 second'
FROM unnest($2::bigint[], $3::float8[]) AS i (invocation_id, delay)
WHERE v.invocation_id = i.invocation_id AND v.invocation_id = ANY($2::bigint[])

-- name: remove_invocations
-- params: invocation_ids
-- Deletes succeeded and abandoned invocations. This is in the transaction of the claim, which locks
-- their rows, so that nothing is sent and then repeated.
DELETE FROM schedule_invocations WHERE invocation_id = ANY($1::bigint[])
