-- Serial queues: what they do otherwise than FIFO queues, in whose tables their messages lie (fifo.sql
-- says what stands in them). Of a group one message is out: d_seq has one element. It is the head of
-- its group until it is deleted, moved away or ends.

-- name: find_repeats
-- params: now, queue_id, group_ids, dedup_keys
-- Which of these deduplication keys still count: those whose message is there. dedup_keys is the text
-- of an array.
SELECT k.dedup_key
FROM unnest(($4::text)::uuid[]) AS i (dedup_key), LATERAL (
  SELECT f.dedup_key FROM fifo_dedup AS f
  WHERE f.queue_id = $2::int AND f.dedup_key = i.dedup_key OFFSET 0) AS k
WHERE k.dedup_key <> ALL (serial_free(coalesce($1::timestamptz, present()), ARRAY[$2::int],
  array_fill($2::int, ARRAY[cardinality($3::text[])]), $3::text[], ($4::text)::uuid[]))
