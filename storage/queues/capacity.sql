-- Remaining capacity of bounded queues, and messages that wait for capacity in their queues.

-- name: hold
-- params: now, queue_ids
-- Locks the bounded queues among these against other additions. Returns their capacity and the
-- number of messages waiting for it. A function: it locks before it reads.
SELECT queue_ids, rooms, waiting FROM hold_rooms($1, $2)

-- name: insert
-- params: now, queue_ids, messages
-- Adds waiting messages behind the present ones. The caller has locked their queues (`hold_rooms`).
INSERT INTO waiting_messages (queue_id, waiting_since, message)
SELECT i.queue_id, clock.now, i.message
FROM (SELECT coalesce($1::timestamptz, present()) AS now) AS clock,
  unnest($2::int[], $3::text[]) WITH ORDINALITY AS i (queue_id, message, position)
ORDER BY i.position

-- name: find
-- params: now, after_queue_id, limit, account_ids, are_chosen
-- The next queues with waiting messages, by index from one to the next, and whether there is work:
-- capacity, a first message past the retention, or a deleted queue. Only queues of these accounts,
-- or of all others (storage.queries).
WITH RECURSIVE found AS (
  (SELECT w.queue_id, w.waiting_since, 1 AS place FROM waiting_messages AS w
   WHERE w.queue_id > $2 ORDER BY w.queue_id, w.waiting_id LIMIT 1)
  UNION ALL
  SELECT n.queue_id, n.waiting_since, f.place + 1
  FROM found AS f, LATERAL (
    SELECT w.queue_id, w.waiting_since FROM waiting_messages AS w
    WHERE w.queue_id > f.queue_id ORDER BY w.queue_id, w.waiting_id LIMIT 1) AS n
  WHERE f.place < $3
)
SELECT f.queue_id, q.queue_id IS NULL OR (
    (q.account_id = ANY($4::text[])) = $5::boolean AND (
      f.waiting_since <= coalesce($1::timestamptz, present()) - make_interval(secs => q.retention)
      OR q.most_messages > (
        SELECT coalesce(sum(d.delta), 0) FROM queue_deltas AS d WHERE d.queue_id = f.queue_id))
  ) AS is_due
FROM found AS f LEFT JOIN LATERAL (
  SELECT k.queue_id, k.account_id, k.most_messages,
    coalesce((k.attributes ->> 'MessageRetentionPeriod')::int, 345600) AS retention
  FROM queues AS k WHERE k.queue_id = f.queue_id AND k.deleted_at IS NULL OFFSET 0) AS q ON true
ORDER BY f.place

-- name: take
-- params: now, queue_id, limit, most_bytes
-- Removes and returns the first messages that wait for a queue in order, at most `most_bytes` but
-- at least one, with the seconds that each has waited. The caller has locked the queue
-- (`hold_rooms`).
WITH picked AS MATERIALIZED (
  SELECT x.waiting_id FROM (
    SELECT w.waiting_id, sum(w.size) OVER (ORDER BY w.waiting_id) - w.size AS bytes_before
    FROM (
      SELECT m.waiting_id, octet_length(m.message) AS size FROM waiting_messages AS m
      WHERE m.queue_id = $2 ORDER BY m.waiting_id LIMIT $3) AS w) AS x
  WHERE x.bytes_before < $4::bigint
), gone AS (
  DELETE FROM waiting_messages AS w
  WHERE w.queue_id = $2 AND w.waiting_id <= (SELECT max(picked.waiting_id) FROM picked)
  RETURNING w.waiting_id, w.waiting_since, w.message
)
SELECT floor(date_part('epoch', coalesce($1::timestamptz, present()) - gone.waiting_since))::int
  AS waited, gone.message
FROM gone ORDER BY gone.waiting_id

-- name: last
-- params: queue_id
-- The last message that waits for a queue; 0: none.
SELECT coalesce(max(w.waiting_id), 0) FROM waiting_messages AS w WHERE w.queue_id = $1

-- name: drop
-- params: queue_id, last_waiting_id, limit
-- Removes messages that wait for a queue, up to the given one.
WITH gone AS (
  DELETE FROM waiting_messages AS w WHERE w.ctid = ANY(ARRAY(
    SELECT x.ctid FROM waiting_messages AS x WHERE x.queue_id = $1 AND x.waiting_id <= $2::bigint
    ORDER BY x.waiting_id LIMIT $3 FOR UPDATE))
  RETURNING 1
)
SELECT count(*)::int FROM gone

-- name: drop_outdated
-- params: now, queue_id, retention, limit
-- Removes messages that have waited for the retention of their queue.
WITH gone AS (
  DELETE FROM waiting_messages AS w WHERE w.ctid = ANY(ARRAY(
    SELECT x.ctid FROM (
      SELECT m.ctid, m.waiting_since FROM waiting_messages AS m WHERE m.queue_id = $2
      ORDER BY m.waiting_id LIMIT $4 FOR UPDATE) AS x
    WHERE x.waiting_since <= coalesce($1::timestamptz, present()) - make_interval(secs => $3::int)))
  RETURNING 1
)
SELECT count(*)::int FROM gone
