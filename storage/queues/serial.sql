-- Strict FIFO queues: differences from FIFO queues, whose tables they share (see fifo.sql). One
-- message of a group is in flight: d_seq has one element. It is the head of its group until it is
-- deleted, moved or expires.

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

-- name: find_repeats
-- params: now, queue_id, group_ids, dedup_keys
-- Returns the valid ones of these deduplication keys: those whose message exists. dedup_keys is the
-- text of an array.
SELECT k.dedup_key
FROM unnest(($4::text)::uuid[]) AS i (dedup_key), LATERAL (
  SELECT f.dedup_key FROM fifo_dedup AS f
  WHERE f.queue_id = $2::int AND f.dedup_key = i.dedup_key OFFSET 0) AS k
WHERE k.dedup_key <> ALL (serial_free(coalesce($1::timestamptz, present()), ARRAY[$2::int],
  array_fill($2::int, ARRAY[cardinality($3::text[])]), $3::text[], ($4::text)::uuid[]))
