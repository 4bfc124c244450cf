-- Housekeeping: messages past their retention, counters, remains of deleted queues.
-- Removes expired messages before the retention of their queue ends. Receives and counts leave them
-- out anyway. A sweep takes a few messages from each queue, as in capacity.sql: a statement for
-- each table and its index.

-- name: find_expired
-- params: now, after_queue_id, limit, account_ids, are_chosen
-- Examines the oldest message of each queue, from one queue to the next by index: empty queues cost
-- nothing. Returns the last queue examined and the queues whose oldest message is past its
-- retention, with the retention in seconds, for these accounts or for all others
-- (storage.queries).
WITH RECURSIVE heads AS (
  (SELECT m.queue_id, m.sent_at, 1 AS place FROM messages AS m
   WHERE m.queue_id > $2 ORDER BY m.queue_id, m.sequence LIMIT 1)
  UNION ALL
  SELECT n.queue_id, n.sent_at, h.place + 1
  FROM heads AS h, LATERAL (
    SELECT m.queue_id, m.sent_at FROM messages AS m
    WHERE m.queue_id > h.queue_id ORDER BY m.queue_id, m.sequence LIMIT 1) AS n
  WHERE h.place < $3
), expired AS MATERIALIZED (
  SELECT q.queue_id, r.retention
  FROM heads AS h
  JOIN queues AS q ON q.queue_id = h.queue_id AND q.deleted_at IS NULL,
  LATERAL (SELECT coalesce((q.attributes ->> 'MessageRetentionPeriod')::int, 345600) AS retention) AS r
  WHERE h.sent_at <= coalesce($1::timestamptz, present()) - make_interval(secs => r.retention)
    AND (q.account_id = ANY($4::text[])) = $5::boolean
)
SELECT (SELECT max(heads.queue_id) FROM heads) AS last_queue_id,
  (SELECT count(*) FROM heads)::int AS looked_at,
  ARRAY(SELECT expired.queue_id FROM expired ORDER BY expired.queue_id) AS queue_ids,
  ARRAY(SELECT expired.retention FROM expired ORDER BY expired.queue_id) AS retentions

-- name: find_expired_fifo
-- params: now, after_queue_id, limit, account_ids, are_chosen
-- As `find_expired` for FIFO queues: a group ready for longer than the retention has a head past
-- it. Includes queues with messages past their own expiry.
WITH RECURSIVE heads AS (
  (SELECT f.queue_id, f.ready_at, 1 AS place FROM fifo_groups AS f
   WHERE f.queue_id > $2 ORDER BY f.queue_id, f.ready_at LIMIT 1)
  UNION ALL
  SELECT n.queue_id, n.ready_at, h.place + 1
  FROM heads AS h, LATERAL (
    SELECT f.queue_id, f.ready_at FROM fifo_groups AS f
    WHERE f.queue_id > h.queue_id ORDER BY f.queue_id, f.ready_at LIMIT 1) AS n
  WHERE h.place < $3
), expired AS MATERIALIZED (
  SELECT q.queue_id, r.retention
  FROM heads AS h
  JOIN queues AS q ON q.queue_id = h.queue_id AND q.deleted_at IS NULL,
  LATERAL (SELECT coalesce((q.attributes ->> 'MessageRetentionPeriod')::int, 345600) AS retention) AS r
  WHERE (h.ready_at <= coalesce($1::timestamptz, present()) - make_interval(secs => r.retention)
      OR EXISTS (
        SELECT 1 FROM fifo_messages AS m
        WHERE m.queue_id = h.queue_id AND m.expires_at <= coalesce($1::timestamptz, present())
        OFFSET 0))
    AND (q.account_id = ANY($4::text[])) = $5::boolean
)
SELECT (SELECT max(heads.queue_id) FROM heads) AS last_queue_id,
  (SELECT count(*) FROM heads)::int AS looked_at,
  ARRAY(SELECT expired.queue_id FROM expired ORDER BY expired.queue_id) AS queue_ids,
  ARRAY(SELECT expired.retention FROM expired ORDER BY expired.queue_id) AS retentions

-- name: expire_standard
-- params: now, queue_ids, retentions, limit_each
-- Deletes from the oldest `limit_each` messages of each queue those past their retention, in flight
-- or not, except locked ones. Only these are locked: a lock on a live message would hide it from
-- receives. The window is bounded first, or a deep queue would be read through. Returns the count
-- for each queue.
WITH old AS MATERIALIZED (
  SELECT w.place
  FROM unnest($2::int[], $3::int[]) AS q (queue_id, retention), LATERAL (
    SELECT o.ctid AS place, o.sent_at FROM messages AS o
    WHERE o.queue_id = q.queue_id ORDER BY o.sequence LIMIT $4) AS w
  WHERE w.sent_at
    <= coalesce($1::timestamptz, present()) - make_interval(secs => q.retention)
), picked AS MATERIALIZED (
  SELECT m.ctid AS place FROM messages AS m
  WHERE m.ctid = ANY(ARRAY(SELECT old.place FROM old))
  FOR UPDATE SKIP LOCKED
), gone AS (
  DELETE FROM messages AS m WHERE m.ctid = ANY(ARRAY(SELECT picked.place FROM picked))
  RETURNING m.queue_id
), counted AS (
  INSERT INTO queue_deltas (queue_id, delta)
  SELECT gone.queue_id, -count(*) FROM gone GROUP BY gone.queue_id
)
SELECT gone.queue_id, count(*)::int AS gone FROM gone GROUP BY gone.queue_id

-- name: fold_deltas
-- params: most_per_queue, limit
-- Replaces at most `limit` deltas of queues with more than `most_per_queue` by one each, with the
-- sum and the arrivals: the positive part of each delta not folded before. One statement, so no
-- reader misses sums; SKIP LOCKED gives each delta to one worker. An empty queue keeps one, for its
-- arrivals.
WITH crowded AS MATERIALIZED (
  SELECT d.queue_id FROM queue_deltas AS d GROUP BY d.queue_id HAVING count(*) > $1
), picked AS MATERIALIZED (
  SELECT d.ctid AS place FROM queue_deltas AS d
  WHERE d.queue_id = ANY(ARRAY(SELECT crowded.queue_id FROM crowded))
  LIMIT $2 FOR UPDATE SKIP LOCKED
), taken AS (
  DELETE FROM queue_deltas AS d WHERE d.ctid = ANY(ARRAY(SELECT picked.place FROM picked))
  RETURNING d.queue_id, d.delta, coalesce(d.arrived, greatest(d.delta, 0)) AS arrived
), folded AS (
  INSERT INTO queue_deltas (queue_id, delta, arrived)
  SELECT t.queue_id, sum(t.delta), sum(t.arrived) FROM taken AS t
  GROUP BY t.queue_id HAVING sum(t.delta) <> 0 OR sum(t.arrived) <> 0
)
SELECT count(*)::int FROM taken

-- name: find_tombstones
-- params: now, after_queue_id, limit, seconds
-- Deleted queues, and whether their names are free again.
SELECT q.queue_id, q.is_fifo,
  q.deleted_at <= coalesce($1::timestamptz, present()) - make_interval(secs => $4) AS is_due
FROM queues AS q
WHERE q.deleted_at IS NOT NULL AND q.queue_id > $2
ORDER BY q.queue_id LIMIT $3

-- name: lock_tombstone
-- params: queue_id
-- Locks a deleted queue, and its table against a load of a saved state; or no row.
SELECT q.queue_id FROM queues AS q WHERE q.queue_id = $1 AND q.deleted_at IS NOT NULL
FOR KEY SHARE

-- name: clear_tombstone
-- params: queue_id, limit
-- Deletes messages of a deleted standard queue, which needs no counter.
WITH gone AS (
  DELETE FROM messages AS m WHERE m.ctid = ANY(ARRAY(
    SELECT o.ctid FROM messages AS o
    WHERE o.queue_id = $1 ORDER BY o.sequence LIMIT $2 FOR UPDATE SKIP LOCKED))
  RETURNING 1
)
SELECT count(*)::int FROM gone

-- name: remove_tombstone
-- params: queue_id
-- Removes an empty deleted queue with its counter and move tasks. Returns the queues removed.
WITH removed AS (
  DELETE FROM queues AS q
  WHERE q.queue_id = $1 AND q.deleted_at IS NOT NULL
    AND NOT EXISTS (SELECT 1 FROM messages AS m WHERE m.queue_id = $1)
    AND NOT EXISTS (SELECT 1 FROM fifo_messages AS m WHERE m.queue_id = $1)
    AND NOT EXISTS (SELECT 1 FROM message_archive AS a WHERE a.queue_id = $1)
  RETURNING q.queue_id
), uncounted AS (
  DELETE FROM queue_deltas AS d USING removed AS r WHERE d.queue_id = r.queue_id
), forgotten AS (
  DELETE FROM move_tasks AS t USING removed AS r WHERE t.source_queue_id = r.queue_id
)
SELECT count(*)::int FROM removed

-- name: find_overdue
-- params: now, after_queue_id, limit, account_ids, are_chosen
-- Examines the first message of each queue to expire, from one queue to the next by index: messages
-- without an expiry cost nothing. Returns the last queue examined and the queues with expired
-- messages, for these accounts or for all others (storage.queries).
WITH RECURSIVE heads AS (
  (SELECT m.queue_id, m.expires_at, 1 AS place FROM messages AS m
   WHERE m.queue_id > $2::int AND m.expires_at IS NOT NULL
   ORDER BY m.queue_id, m.expires_at LIMIT 1)
  UNION ALL
  SELECT n.queue_id, n.expires_at, h.place + 1
  FROM heads AS h, LATERAL (
    SELECT m.queue_id, m.expires_at FROM messages AS m
    WHERE m.queue_id > h.queue_id AND m.expires_at IS NOT NULL
    ORDER BY m.queue_id, m.expires_at LIMIT 1) AS n
  WHERE h.place < $3::int
), overdue AS MATERIALIZED (
  SELECT q.queue_id
  FROM heads AS h JOIN queues AS q ON q.queue_id = h.queue_id AND q.deleted_at IS NULL
  WHERE h.expires_at <= coalesce($1::timestamptz, present())
    AND (q.account_id = ANY($4::text[])) = $5::boolean
)
SELECT (SELECT max(heads.queue_id) FROM heads) AS last_queue_id,
  (SELECT count(*) FROM heads)::int AS looked_at,
  ARRAY(SELECT overdue.queue_id FROM overdue ORDER BY overdue.queue_id) AS queue_ids

-- name: remove_overdue
-- params: now, queue_ids, limit_each
-- Deletes at most `limit_each` expired messages of each queue, in flight or not, except locked
-- ones. Returns the count for each queue.
WITH clock AS MATERIALIZED (
  SELECT coalesce($1::timestamptz, present()) AS now
), picked AS MATERIALIZED (
  SELECT p.place FROM clock, unnest($2::int[]) AS q (queue_id), LATERAL (
    SELECT m.ctid AS place FROM messages AS m
    WHERE m.queue_id = q.queue_id AND m.expires_at <= clock.now
    ORDER BY m.expires_at LIMIT $3::int FOR UPDATE SKIP LOCKED) AS p
), gone AS (
  DELETE FROM messages AS m WHERE m.ctid = ANY(ARRAY(SELECT picked.place FROM picked))
  RETURNING m.queue_id
), counted AS (
  INSERT INTO queue_deltas (queue_id, delta)
  SELECT gone.queue_id, -count(*) FROM gone GROUP BY gone.queue_id
)
SELECT gone.queue_id, count(*)::int AS gone FROM gone GROUP BY gone.queue_id
