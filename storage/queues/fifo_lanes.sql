-- Receive attempts of FIFO queues (see fifo_queues.sql): the messages that a retry gets.
--
-- Strict FIFO queues, from `come_back` on: differences from FIFO queues, whose tables they share.
-- One message of a group is in flight: d_seq has one element. It is the head of its group until it
-- is deleted, moved or expires.

-- name: hold_attempt
-- params: now, queue_id, attempt_id
-- Serializes receives with the same attempt id. Returns the messages of the first one, and whether
-- its 5 minutes still run.
INSERT INTO fifo_attempts AS a (queue_id, attempt_id, expires_at, group_ids, sequences,
  receive_counts, untils)
VALUES ($2::int, $3::text, '-infinity', '{}', '{}', '{}', '{}')
ON CONFLICT (queue_id, attempt_id) DO UPDATE SET expires_at = a.expires_at
RETURNING a.expires_at > coalesce($1::timestamptz, present()) AS valid, a.group_ids,
  a.sequences, a.receive_counts, a.untils

-- name: repeat_attempt
-- params: now, queue_id, group_ids, sequences, receive_counts, untils, visibility_ms
-- Restarts the visibility timeout of an attempt's messages if none has changed since: not deleted,
-- not received again, its timeout not changed. Returns whether it did.
WITH l AS MATERIALIZED (
  SELECT f.queue_id, f.group_id, f.head_seq, f.d_seq, f.d_rc, f.d_until
  FROM fifo_groups AS f
  WHERE f.queue_id = $2::int AND f.group_id = ANY($3::text[])
  ORDER BY f.group_id FOR NO KEY UPDATE
), clock AS MATERIALIZED (
  SELECT coalesce($1::timestamptz, present()) AS now FROM (SELECT count(*) FROM l) AS c
), same AS MATERIALIZED (
  SELECT count(*) = cardinality($4::bigint[]) AS same
  FROM unnest($3::text[], $4::bigint[], $5::int[], $6::timestamptz[])
    AS e (group_id, sequence, receive_count, until)
  JOIN l ON l.group_id = e.group_id
    AND l.d_rc[array_position(l.d_seq, e.sequence)] = e.receive_count
    AND l.d_until[array_position(l.d_seq, e.sequence)] = e.until
), n AS MATERIALIZED (
  SELECT l.queue_id, l.group_id, l.head_seq, clock.now, ARRAY(
    SELECT CASE WHEN d.seq = ANY($4::bigint[])
      THEN clock.now + $7::bigint * interval '1 millisecond' ELSE d.until END
    FROM unnest(l.d_seq, l.d_until) WITH ORDINALITY AS d (seq, until, place)
    ORDER BY d.place) AS ku
  FROM l, clock, same WHERE same.same
), changed AS (
  INSERT INTO fifo_groups (queue_id, group_id, ready_at, head_seq, d_until)
  SELECT n.queue_id, n.group_id, greatest(n.ku[1], n.now + interval '1 microsecond'), n.head_seq,
    n.ku
  FROM n
  ON CONFLICT (queue_id, group_id) DO UPDATE
  SET d_until = excluded.d_until, ready_at = excluded.ready_at
)
SELECT same.same FROM same

-- name: attempt_messages
-- params: queue_id, group_ids, sequences, receive_counts
-- Returns the messages of an attempt in its order.
SELECT m.queue_id, m.sequence, m.message_id, e.receive_count, m.body, m.sender_id, m.attributes,
  m.system, floor(date_part('epoch', m.sent_at) * 1000)::bigint AS sent_at_ms,
  floor(date_part('epoch', f.d_first[array_position(f.d_seq, m.sequence)]) * 1000)::bigint
    AS first_received_at_ms,
  m.group_id, m.deduplication_id
FROM unnest($2::text[], $3::bigint[], $4::int[])
  WITH ORDINALITY AS e (group_id, sequence, receive_count, place), LATERAL (
  SELECT g.d_seq, g.d_first FROM fifo_groups AS g
  WHERE g.queue_id = $1::int AND g.group_id = e.group_id OFFSET 0) AS f, LATERAL (
  SELECT x.queue_id, x.sequence, x.message_id, x.body, x.sender_id, x.attributes, x.system,
    x.sent_at, x.group_id, x.deduplication_id
  FROM fifo_messages AS x
  WHERE x.queue_id = $1::int AND x.group_id = e.group_id AND x.sequence = e.sequence
  OFFSET 0) AS m
ORDER BY e.place

-- name: keep_attempt
-- params: now, queue_id, attempt_id, group_ids, sequences, receive_counts, is_first
-- Records messages and deadlines of an attempt; its first receive starts the 5 minutes.
UPDATE fifo_attempts AS a
SET group_ids = $4::text[], sequences = $5::bigint[], receive_counts = $6::int[],
    untils = ARRAY(
      SELECT f.d_until[array_position(f.d_seq, e.sequence)]
      FROM unnest($4::text[], $5::bigint[]) WITH ORDINALITY AS e (group_id, sequence, place),
        LATERAL (
          SELECT g.d_seq, g.d_until FROM fifo_groups AS g
          WHERE g.queue_id = $2::int AND g.group_id = e.group_id OFFSET 0) AS f
      ORDER BY e.place),
    expires_at = CASE WHEN $7::boolean
      THEN coalesce($1::timestamptz, present()) + interval '5 minutes'
      ELSE a.expires_at END
WHERE a.queue_id = $2::int AND a.attempt_id = $3::text

-- name: come_back
-- params: now, queue_ids, most
-- Returns groups whose timeout has ended, up to so many of each queue, to their message's place in
-- receive order. Groups that stay for another reason are sometimes marked too, without harm. The
-- index has only hidden groups, so receives without expired leases cost one probe.
WITH clock AS MATERIALIZED (
  SELECT coalesce($1::timestamptz, present()) AS now
), due AS MATERIALIZED (
  SELECT g.queue_id, g.group_id, g.ready_at, g.head_seq
  FROM clock, unnest($2::int[]) AS q (queue_id), LATERAL (
    SELECT f.queue_id, f.group_id, f.ready_at, f.head_seq FROM fifo_groups AS f
    WHERE f.queue_id = q.queue_id AND f.comes_back AND f.ready_at <= clock.now
    ORDER BY f.ready_at, f.head_seq LIMIT $3::int FOR NO KEY UPDATE SKIP LOCKED) AS g
)
INSERT INTO fifo_groups (queue_id, group_id, ready_at, head_seq)
SELECT d.queue_id, d.group_id, least(m.visible_at, d.ready_at), d.head_seq
FROM due AS d LEFT JOIN LATERAL (
  SELECT x.visible_at FROM fifo_messages AS x
  WHERE x.queue_id = d.queue_id AND x.group_id = d.group_id AND x.sequence = d.head_seq
  OFFSET 0) AS m ON true
ON CONFLICT (queue_id, group_id) DO UPDATE SET ready_at = excluded.ready_at, comes_back = false

-- name: find_repeats_in_groups
-- params: now, queue_id, group_ids, dedup_keys
-- Returns the deduplication keys whose message exists. dedup_keys is the text of an array.
SELECT k.dedup_key
FROM unnest(($4::text)::uuid[]) AS i (dedup_key), LATERAL (
  SELECT f.dedup_key FROM fifo_dedup AS f
  WHERE f.queue_id = $2::int AND f.dedup_key = i.dedup_key OFFSET 0) AS k
WHERE k.dedup_key <> ALL (serial_free(coalesce($1::timestamptz, present()), ARRAY[$2::int],
  array_fill($2::int, ARRAY[cardinality($3::text[])]), $3::text[], ($4::text)::uuid[]))
