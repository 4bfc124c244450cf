-- Queues with a delivery limit: their dead-letter queues and exhausted messages.

-- name: adopt
-- params: queue_id, parent_id
-- Makes the queue the other one's own dead-letter queue. Concurrent attempts violate queues_parent:
-- the creator must lock the row of the parent.
UPDATE queues SET parent_id = $2 WHERE queue_id = $1

-- name: own
-- params: parent_id
-- The id of the live dead-letter queue created for a queue, or no row.
SELECT queue_id FROM queues WHERE parent_id = $1 AND deleted_at IS NULL

-- name: find_due
-- params: now, after_queue_id, limit, queue_ids, marks, account_ids, are_chosen
-- Examines the next queues with a delivery limit. Returns the last of them, their count, and those
-- in which a message became visible again at or behind the mark of its queue, for these accounts or
-- for all others (storage.queries). One index probe for each.
WITH clock AS MATERIALIZED (
  SELECT coalesce($1::timestamptz, present()) AS now
), looked AS MATERIALIZED (
  SELECT q.queue_id, q.account_id FROM queues AS q
  WHERE q.max_deliveries IS NOT NULL AND q.deleted_at IS NULL AND q.queue_id > $2 AND NOT q.is_fifo
  ORDER BY q.queue_id LIMIT $3
), due AS MATERIALIZED (
  SELECT l.queue_id
  FROM clock, looked AS l
  LEFT JOIN unnest($4::int[], $5::timestamptz[]) AS k (queue_id, mark) ON k.queue_id = l.queue_id
  WHERE (l.account_id = ANY($6::text[])) = $7::boolean AND EXISTS (
    SELECT 1 FROM messages AS m
    WHERE m.queue_id = l.queue_id AND m.receive_count > 0 AND m.visible_at <= clock.now
      AND m.visible_at >= coalesce(k.mark, '-infinity'))
)
SELECT (SELECT max(looked.queue_id) FROM looked) AS last_queue_id,
  (SELECT count(*) FROM looked)::int AS looked_at,
  ARRAY(SELECT due.queue_id FROM due ORDER BY due.queue_id) AS queue_ids

-- name: lease_dead
-- params: now, queue_id, deliveries, retention, after_visible_at, after_sequence, looks
-- Examines at most `looks` messages in the order in which they became visible again. Leases
-- exhausted ones, as a receive does, and skips locked ones. A dead letter of another queue may be
-- delivered as often as a new message. Returns the number examined, the last of them, the leased
-- messages and the present.
WITH clock AS MATERIALIZED (
  SELECT coalesce($1::timestamptz, present()) AS now
), looked AS MATERIALIZED (
  SELECT m.ctid AS place, m.visible_at, m.sequence,
    m.receive_count - coalesce(m.prior_count, 0) >= $3::int
      AND m.sent_at > clock.now - make_interval(secs => $4::int)
      AND (m.expires_at IS NULL OR m.expires_at > clock.now) AS is_dead
  FROM clock, messages AS m
  WHERE m.queue_id = $2 AND m.receive_count > 0 AND m.visible_at <= clock.now
    AND m.visible_at >= $5::timestamptz AND (m.visible_at, m.sequence) > ($5::timestamptz, $6::bigint)
  ORDER BY m.visible_at, m.sequence LIMIT $7
), picked AS MATERIALIZED (
  SELECT m.ctid AS place FROM clock, messages AS m
  WHERE m.ctid = ANY(ARRAY(SELECT looked.place FROM looked WHERE looked.is_dead))
    AND m.queue_id = $2 AND m.receive_count > 0 AND m.visible_at <= clock.now
  FOR NO KEY UPDATE OF m SKIP LOCKED
), leased AS (
  UPDATE messages AS m
  SET receive_count = m.receive_count + 1, visible_at = clock.now + interval '1 minute'
  FROM clock
  WHERE m.ctid = ANY(ARRAY(SELECT picked.place FROM picked))
  RETURNING m.sequence, m.receive_count
), last AS (
  SELECT looked.visible_at, looked.sequence FROM looked
  ORDER BY looked.visible_at DESC, looked.sequence DESC LIMIT 1
)
SELECT (SELECT count(*) FROM looked)::int AS looked_at,
  (SELECT last.visible_at FROM last) AS last_visible_at,
  (SELECT last.sequence FROM last) AS last_sequence,
  ARRAY(SELECT leased.sequence FROM leased ORDER BY leased.sequence) AS sequences,
  ARRAY(SELECT leased.receive_count FROM leased ORDER BY leased.sequence) AS receive_counts,
  (SELECT clock.now FROM clock) AS now
