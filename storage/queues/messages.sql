-- Access to messages by their number alone.

-- part: kept
-- Columns that a message keeps unchanged when it moves to another queue.
body_md5, sender_id, body, attributes

-- part: message
-- Columns in the order of `Received`, of a row m of a message at rest.
m.queue_id, m.sequence, m.message_id, m.receive_count, m.body, m.sender_id, m.attributes, m.system,
  floor(date_part('epoch', m.sent_at) * 1000)::bigint AS sent_at_ms,
  floor(date_part('epoch', m.first_received_at) * 1000)::bigint AS first_received_at_ms,
  m.group_id, m.deduplication_id, NULL::timestamptz AS leased_at, m.body_md5, m.priority,
  floor(date_part('epoch', m.expires_at) * 1000)::bigint AS expires_at_ms

-- name: set_visible_at
-- params: now, queue_id, sequence, seconds
-- Hides a message of a standard queue for so long, or shows it, in flight or never received.
-- Returns the instant, or no row if it is deleted.
UPDATE messages AS m
SET visible_at = coalesce($1::timestamptz, present()) + $4::int * interval '1 second'
WHERE m.queue_id = $2::int AND m.sequence = $3::bigint
RETURNING m.visible_at

-- name: find_in_flight
-- params: now, queue_id, sequences
-- Returns the messages in flight, with their group and the count of their last receive. Reads the
-- groups with their head in flight or delayed. If a message is missing there, it also reads ready
-- groups: they have messages in flight when only their head was released.
WITH clock AS MATERIALIZED (
  SELECT coalesce($1::timestamptz, present()) AS now
), held AS MATERIALIZED (
  SELECT d.sequence, g.group_id, d.receive_count
  FROM clock, LATERAL (
    SELECT f.group_id, f.d_seq, f.d_rc, f.d_until FROM fifo_groups AS f
    WHERE f.queue_id = $2::int AND f.ready_at > '-infinity' AND f.ready_at > clock.now
      AND f.d_seq && $3::bigint[] OFFSET 0) AS g,
    unnest(g.d_seq, g.d_rc, g.d_until) AS d (sequence, receive_count, until)
  WHERE d.sequence = ANY($3::bigint[]) AND d.until > clock.now
), ready AS (
  SELECT d.sequence, g.group_id, d.receive_count
  FROM clock, LATERAL (
    SELECT f.group_id, f.d_seq, f.d_rc, f.d_until FROM fifo_groups AS f
    WHERE f.queue_id = $2::int AND f.ready_at > '-infinity' AND f.ready_at <= clock.now
      AND f.d_seq && $3::bigint[] OFFSET 0) AS g,
    unnest(g.d_seq, g.d_rc, g.d_until) AS d (sequence, receive_count, until)
  WHERE d.sequence = ANY($3::bigint[]) AND d.until > clock.now
    AND (SELECT count(*) FROM held) < cardinality($3::bigint[])
)
SELECT r.sequence, r.group_id, r.receive_count, clock.now
FROM (SELECT * FROM held UNION ALL SELECT * FROM ready) AS r, clock
