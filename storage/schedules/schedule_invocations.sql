-- Failed invocations of schedules to repeat.
-- Every statement that needs the time takes `now`; NULL means the clock of the database.

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

-- name: claim
-- params: now, limit, account_ids, are_chosen
-- Locks the due invocations to the end of the transaction, the most overdue first; skips locked
-- ones.
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

-- name: remove
-- params: invocation_ids
-- Deletes succeeded and abandoned invocations. This is in the transaction of the claim, which locks
-- their rows, so that nothing is sent and then repeated.
DELETE FROM schedule_invocations WHERE invocation_id = ANY($1::bigint[])
