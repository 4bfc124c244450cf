-- Message move tasks: from a dead-letter queue to one queue, or back to the source of each message.

-- name: start
-- params: now, task_id, source_queue_id, source_arn, destination_arn, max_per_second, to_move_count, is_fifo
-- Creates a task; no row if the source has a running one.
INSERT INTO move_tasks (task_id, source_queue_id, source_arn, destination_arn, max_per_second, status,
  to_move_count, started_at, next_batch_at, end_sequence)
SELECT $2, $3, $4, $5, $6, 'RUNNING', $7, clock.now, clock.now,
  CASE WHEN $8::boolean THEN (SELECT last_value FROM fifo_sequence)
    ELSE (SELECT last_value FROM message_sequence) END
FROM (SELECT coalesce($1::timestamptz, present()) AS now) AS clock
ON CONFLICT (source_queue_id) WHERE status = 'RUNNING' DO NOTHING
RETURNING task_id, source_queue_id, source_arn, destination_arn, max_per_second, status,
  failure_reason, to_move_count, moved_count, started_at

-- name: count_running
-- params: account_id, region
-- Running tasks of one account in one region.
SELECT count(*) FROM move_tasks AS t JOIN queues AS q ON q.queue_id = t.source_queue_id
WHERE t.status = 'RUNNING' AND q.account_id = $1 AND q.region = $2

-- name: forget_finished
-- params: source_queue_id, keep
-- Deletes the finished tasks of a source except the newest, which are all that can be listed.
DELETE FROM move_tasks
WHERE source_queue_id = $1 AND status <> 'RUNNING' AND task_id NOT IN (
  SELECT t.task_id FROM move_tasks AS t WHERE t.source_queue_id = $1
  ORDER BY t.started_at DESC, t.task_id LIMIT $2)

-- name: lock_task
-- params: source_queue_id, task_id
-- Locks and returns the task; waits for the batch in progress.
SELECT task_id, source_queue_id, source_arn, destination_arn, max_per_second, status,
  failure_reason, to_move_count, moved_count, started_at
FROM move_tasks WHERE source_queue_id = $1 AND task_id = $2
FOR NO KEY UPDATE

-- name: list_newest
-- params: source_queue_id, limit
-- Returns the tasks of ListMessageMoveTasks, newest first. A source keeps few tasks
-- (`forget_finished`), so the primary key finds them and the sort is small.
SELECT task_id, source_queue_id, source_arn, destination_arn, max_per_second, status,
  failure_reason, to_move_count, moved_count, started_at
FROM move_tasks WHERE source_queue_id = $1
ORDER BY started_at DESC, task_id LIMIT $2

-- name: claim
-- params: now, longest_pause_seconds, account_ids, are_chosen
-- Locks the running task with the most overdue batch. Skips locked tasks, and tasks that are not of
-- these accounts, or of all others (storage.queries). A wait longer than any pause results
-- from a clock that was moved back.
SELECT t.task_id, t.source_queue_id, t.source_arn, t.destination_arn, t.max_per_second,
  t.last_sequence, t.end_sequence, clock.now - t.started_at AS age
FROM (SELECT coalesce($1::timestamptz, present()) AS now) AS clock, move_tasks AS t
WHERE t.status = 'RUNNING' AND (t.next_batch_at <= clock.now
  OR t.next_batch_at > clock.now + make_interval(secs => $2))
  AND (split_part(t.source_arn, ':', 5) = ANY($3::text[])) = $4::boolean
ORDER BY t.next_batch_at, t.task_id LIMIT 1
FOR NO KEY UPDATE OF t SKIP LOCKED

-- name: move_standard_batch
-- params: now, source_queue_id, after_sequence, end_sequence, limit, destination_queue_id, room_queue_ids, rooms, only
-- Moves messages that are not in flight, oldest first. Skips locked ones and, unless `only` is
-- NULL, those not in it. A moved message is new: id, sequence, send time, no receives, the delay of
-- its queue. It keeps its priority and expiry; expired ones are left out. Without a destination
-- each returns to the queue in its DeadLetterQueueSourceArn; a message without one, or of a deleted
-- queue, stays. Returns how many it examined and the last of them, the target queues with their
-- counts, and how many stayed for either reason. Bounded queues get no more than the capacity that
-- the caller found.
WITH clock AS MATERIALIZED (
  SELECT coalesce($1::timestamptz, present()) AS now
), picked AS MATERIALIZED (
  SELECT m.ctid AS place, m.sequence,
    CASE WHEN $6::int IS NULL THEN m.system::jsonb ->> 'DeadLetterQueueSourceArn' END AS home_arn
  FROM messages AS m
  WHERE m.queue_id = $2 AND m.sequence > $3 AND m.sequence <= $4
    AND (m.receive_count = 0 OR m.visible_at <= (SELECT clock.now FROM clock))
    AND (m.expires_at IS NULL OR m.expires_at > (SELECT clock.now FROM clock))
    AND ($9::bigint[] IS NULL OR m.sequence = ANY($9))
  ORDER BY m.sequence LIMIT $5
  FOR UPDATE SKIP LOCKED
), targets AS MATERIALIZED (
  SELECT h.home_arn, q.queue_id, q.has_priorities,
    coalesce((q.attributes ->> 'DelaySeconds')::int, 0) AS delay,
    CASE WHEN q.most_messages IS NOT NULL
      THEN coalesce(($8::bigint[])[array_position($7::int[], q.queue_id)], 0) END AS room
  FROM (SELECT DISTINCT picked.home_arn FROM picked) AS h
  JOIN queues AS q ON q.deleted_at IS NULL AND q.queue_id = coalesce($6::int, (
    SELECT n.queue_id FROM queues AS n
    WHERE n.region = split_part(h.home_arn, ':', 4) AND n.account_id = split_part(h.home_arn, ':', 5)
      AND n.queue_name = split_part(h.home_arn, ':', 6) AND n.deleted_at IS NULL))
), addressed AS MATERIALIZED (
  SELECT a.* FROM (
    SELECT p.place, p.sequence, t.queue_id, t.has_priorities, t.delay, t.room,
      row_number() OVER (ORDER BY p.sequence DESC) AS places_behind,
      row_number() OVER (PARTITION BY t.queue_id ORDER BY p.sequence) AS nth
    FROM picked AS p JOIN targets AS t ON t.home_arn IS NOT DISTINCT FROM p.home_arn) AS a
  WHERE a.room IS NULL OR a.nth <= a.room
), taken AS (
  DELETE FROM messages AS m
  WHERE m.ctid = ANY(ARRAY(SELECT addressed.place FROM addressed))
  RETURNING m.*
), moved AS (
  INSERT INTO messages (queue_id, visible_at, sent_at, message_id, system, priority, expires_at,
-- include: queues/messages.kept
  )
  SELECT a.queue_id,
    clock.now + make_interval(secs => a.delay) - a.places_behind * interval '1 microsecond',
    clock.now, gen_random_uuid(), nullif((t.system::jsonb - 'DeadLetterQueueSourceArn')::text, '{}'),
    coalesce(t.priority, CASE WHEN a.has_priorities THEN 0 END), t.expires_at,
-- include: queues/messages.kept
  FROM clock, taken AS t JOIN addressed AS a ON a.sequence = t.sequence
  ORDER BY a.sequence
  RETURNING queue_id, priority
), arrived AS MATERIALIZED (
  SELECT moved.queue_id, count(*)::int AS moved FROM moved GROUP BY moved.queue_id
), counted AS (
  INSERT INTO queue_deltas (queue_id, delta)
  SELECT arrived.queue_id, arrived.moved FROM arrived
  UNION ALL
  SELECT $2, -sum(arrived.moved) FROM arrived HAVING count(*) > 0
)
SELECT (SELECT count(*)::int FROM picked) AS looked_at,
  (SELECT max(picked.sequence) FROM picked) AS last_sequence,
  ARRAY(SELECT arrived.queue_id FROM arrived ORDER BY arrived.queue_id) AS queue_ids,
  ARRAY(SELECT arrived.moved FROM arrived ORDER BY arrived.queue_id) AS moved_counts,
  (SELECT count(*)::int FROM picked WHERE $6::int IS NULL AND picked.home_arn IS NULL)
    AS without_source,
  (SELECT count(*)::int FROM picked
   WHERE ($6::int IS NOT NULL OR picked.home_arn IS NOT NULL)
     AND NOT EXISTS (SELECT 1 FROM targets AS t
                     WHERE t.home_arn IS NOT DISTINCT FROM picked.home_arn)) AS without_queue,
  ARRAY(SELECT prioritise(t.queue_id) FROM targets AS t
        WHERE NOT t.has_priorities AND EXISTS (
          SELECT 1 FROM moved WHERE moved.queue_id = t.queue_id AND moved.priority IS NOT NULL))
    AS prioritised

-- name: find_home
-- params: queue_id, sequence
-- Returns the source queue of a dead letter, NULL for a message sent here, and the parent of this
-- dead-letter queue, if any. No row: there is no such message.
SELECT m.system::jsonb ->> 'DeadLetterQueueSourceArn' AS home_arn,
  (SELECT q.parent_id FROM queues AS q WHERE q.queue_id = $1) AS parent_id
FROM messages AS m WHERE m.queue_id = $1 AND m.sequence = $2

-- name: requeue
-- params: now, source_id, sequence, target_id
-- Moves one message back, in flight or not. It keeps its ids, its expiry and its priority, which
-- then orders the target's receives; otherwise it is new, as if sent now and never received.
-- Returns the count: 0 for a deleted or expired message or a deleted queue.
WITH clock AS MATERIALIZED (
  SELECT coalesce($1::timestamptz, present()) AS now
), live AS MATERIALIZED (
  SELECT queue_id, has_priorities FROM queues WHERE queue_id = $4::int AND deleted_at IS NULL
), taken AS (
  DELETE FROM messages AS m
  WHERE m.queue_id = $2::int AND m.sequence = $3::bigint AND EXISTS (SELECT 1 FROM live)
    AND (m.expires_at IS NULL OR m.expires_at > (SELECT clock.now FROM clock))
  RETURNING m.*
), moved AS (
  INSERT INTO messages (queue_id, sequence, visible_at, sent_at, message_id, system, priority,
    expires_at, arrival,
-- include: queues/messages.kept
  )
  SELECT $4::int, t.sequence, clock.now, clock.now, t.message_id,
    nullif((t.system::jsonb - 'DeadLetterQueueSourceArn')::text, '{}'),
    coalesce(t.priority, CASE WHEN live.has_priorities THEN 0 END), t.expires_at,
    nextval('message_sequence'),
-- include: queues/messages.kept
  FROM clock, live, taken AS t
  RETURNING priority
), counted AS (
  INSERT INTO queue_deltas (queue_id, delta)
  SELECT side.queue_id, side.sign * n.moved
  FROM (SELECT count(*) AS moved FROM moved) AS n,
    (VALUES ($2::int, -1), ($4::int, 1)) AS side (queue_id, sign)
  WHERE n.moved > 0
)
SELECT (SELECT count(*)::int FROM moved) AS moved,
  (SELECT prioritise(live.queue_id) FROM live
   WHERE NOT live.has_priorities AND EXISTS (SELECT 1 FROM moved WHERE moved.priority IS NOT NULL))
    AS prioritised

-- name: find_bounded_homes
-- params: now, source_queue_id, after_sequence, end_sequence, limit, only
-- Returns the bounded queues among the targets of the next batch.
SELECT DISTINCT n.queue_id
FROM (
  SELECT DISTINCT p.home_arn FROM (
    SELECT m.system::jsonb ->> 'DeadLetterQueueSourceArn' AS home_arn FROM messages AS m
    WHERE m.queue_id = $2 AND m.sequence > $3 AND m.sequence <= $4
      AND (m.receive_count = 0 OR m.visible_at <= coalesce($1::timestamptz, present()))
      AND ($6::bigint[] IS NULL OR m.sequence = ANY($6))
    ORDER BY m.sequence LIMIT $5) AS p) AS h, LATERAL (
  SELECT q.queue_id, q.most_messages FROM queues AS q
  WHERE q.region = split_part(h.home_arn, ':', 4) AND q.account_id = split_part(h.home_arn, ':', 5)
    AND q.queue_name = split_part(h.home_arn, ':', 6) AND q.deleted_at IS NULL OFFSET 0) AS n
WHERE n.most_messages IS NOT NULL

-- name: advance
-- params: now, source_queue_id, task_id, moved_count, last_sequence, most_arrears_seconds, pause_seconds
-- Counts a batch and schedules the next one. A late task may catch up a little, so that the loop's
-- pauses do not slow it down. A task with a full target pauses.
UPDATE move_tasks
SET moved_count = moved_count + $4, last_sequence = $5,
  next_batch_at = CASE WHEN max_per_second IS NULL THEN clock.now
    ELSE least(greatest(next_batch_at, clock.now - make_interval(secs => $6)), clock.now)
      + $4::float / max_per_second * interval '1 second' END + make_interval(secs => $7::float8)
FROM (SELECT coalesce($1::timestamptz, present()) AS now) AS clock
WHERE source_queue_id = $2 AND task_id = $3

-- name: finish
-- params: now, source_queue_id, task_id, status, failure_reason
-- Ends a running task, whose row the caller locks: no further batch moves for it.
UPDATE move_tasks
SET status = $4, failure_reason = $5, finished_at = coalesce($1::timestamptz, present())
WHERE source_queue_id = $2 AND task_id = $3
