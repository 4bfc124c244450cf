-- Removes expired messages before the retention of their queue ends. Receives and counts leave them
-- out anyway. As in retention.sql and waiting.sql, a few messages from each queue: a statement for
-- each table and its index.
-- Every statement that needs the time takes `now`; NULL means the clock of the database.

-- name: find_overdue
-- params: now, after_queue_id, limit, account_ids, are_chosen
-- Examines the first message of each queue to expire, from one queue to the next by index: messages
-- without an expiry cost nothing. Returns the last queue examined and the queues with expired
-- messages, for these accounts or for all others (storage.clocks.whose).
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
