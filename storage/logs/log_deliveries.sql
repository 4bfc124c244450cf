-- Deliveries: positions of groups in partitions, loaded, decided upon in Python
-- (storage/logs/positions.py), and stored unless they have changed meanwhile.

-- Numbers of many positions come as the texts of arrays: asyncpg examines each element of an array.

-- name: look
-- params: now, group_ids, subscriber_names, sessions, limit
-- Partitions of these subscribers that have something, by number, at most `limit`; the time at
-- which the first of the others has, if a time decides; and the held partitions. `standing`: see
-- `load`.
WITH clock AS MATERIALIZED (
  SELECT coalesce($1::timestamptz, present()) AS now
)
SELECT (i.place - 1)::int AS place, subscriber_standing(
    clock.now, i.group_id, i.subscriber_name, i.session) AS standing,
  d.partition_ids, d.next_at, d.held_ids, (extract(epoch FROM clock.now) * 1000)::bigint AS now_ms
FROM clock, unnest($2::int[], $3::text[], $4::bigint[]) WITH ORDINALITY
  AS i (group_id, subscriber_name, session, place)
CROSS JOIN LATERAL (
  SELECT (array_agg(h.partition_id ORDER BY h.number) FILTER (WHERE h.is_due))[:$5::int]
      AS partition_ids,
    min(h.due_at) FILTER (WHERE NOT h.is_due) AS next_at, array_agg(h.partition_id) AS held_ids
  FROM (
    SELECT p.partition_id, p.number, t.due_at, t.due_at <= t.now AS is_due
    FROM log_positions AS p JOIN log_partitions AS q ON q.partition_id = p.partition_id
    CROSS JOIN LATERAL (
      SELECT (extract(epoch FROM p.barrier_until) * 1000)::bigint AS barrier) AS b
    CROSS JOIN LATERAL (
      SELECT (extract(epoch FROM clock.now) * 1000)::bigint AS now,
        CASE WHEN q.next_offset - 1 > greatest(p.head, q.start_offset - 1) THEN coalesce(b.barrier, 0)
          WHEN p.spans <> '{}' THEN greatest(p.spans[1], b.barrier) END AS due_at) AS t
    WHERE p.group_id = i.group_id AND p.held_by = i.subscriber_name) AS h) AS d

-- name: lock
-- params: group_ids, partition_ids
-- Locks these positions in the common lock order.
SELECT count(*) FROM (
  SELECT 1 FROM log_positions AS p
  WHERE (p.group_id, p.partition_id) IN (
    SELECT i.group_id, i.partition_id
    FROM unnest($1::int[], $2::bigint[]) AS i (group_id, partition_id))
  ORDER BY p.group_id, p.partition_id FOR NO KEY UPDATE) AS locked

-- name: load
-- params: now, group_ids, partition_ids, readers, reader_group_ids, subscriber_names, sessions, most
-- Positions with the bounds of their partitions. `version` changes whenever the row does. `readers`
-- gives the fetch of each position, as an index from 1 into the other arrays, negative if an entry
-- other than the fetch also needs it; 0: no fetch. Fetches get positions with at most `most`
-- numbers of spans in all, but at least one; for the others `spans` is NULL, unless another entry
-- needs them. `standing` is the standing of that subscriber (functions/log_groups.sql).
WITH clock AS MATERIALIZED (
  SELECT coalesce($1::timestamptz, present()) AS now
), readers AS MATERIALIZED (
  SELECT array_agg(subscriber_standing(clock.now, r.group_id, r.subscriber_name, r.session)
    ORDER BY r.place) AS standings
  FROM clock, unnest($5::int[], $6::text[], $7::bigint[]) WITH ORDINALITY
    AS r (group_id, subscriber_name, session, place)
)
SELECT (i.place - 1)::int AS place, (SELECT s.standings FROM readers AS s)[abs(i.reader)] AS standing,
  (extract(epoch FROM (SELECT c.now FROM clock AS c)) * 1000)::bigint AS now_ms, p.held_by, q.number,
  q.partition_key, q.start_offset, q.next_offset, p.xmin::text::bigint AS version, p.watermark,
  p.head, p.deliveries, coalesce((extract(epoch FROM p.barrier_until) * 1000)::bigint, 0) AS barrier,
  CASE WHEN i.reader <= 0 OR sum(cardinality(p.spans)) OVER (
      PARTITION BY i.reader ORDER BY i.place) - cardinality(p.spans) <= $8 THEN p.spans END AS spans
FROM unnest($2::text::int[], $3::text::bigint[], $4::text::int[]) WITH ORDINALITY
  AS i (group_id, partition_id, reader, place)
LEFT JOIN log_positions AS p ON p.group_id = i.group_id AND p.partition_id = i.partition_id
LEFT JOIN log_partitions AS q ON q.partition_id = p.partition_id
ORDER BY i.place

-- name: read
-- params: group_ids, partition_ids, first_offsets, last_offsets, most_bytes
-- Returns the records of these ranges for these groups: at most `most_bytes`, but at least one
-- record. Sizes need no read of TOAST data.
SELECT s.place, s.record_offset, s.published_at, s.record_key, s.record_id, s.metadata, s.failure,
  s.payload, s.total
FROM (
  SELECT (i.place - 1)::int AS place, r.record_offset, r.published_at, r.record_key, r.record_id,
    r.metadata, r.failure, r.payload, z.size, sum(z.size) OVER (ROWS UNBOUNDED PRECEDING) AS total
  FROM unnest($1::text::int[], $2::text::bigint[], $3::text::bigint[], $4::text::bigint[]) WITH ORDINALITY
    AS i (group_id, partition_id, first_offset, last_offset, place)
  JOIN LATERAL (
    SELECT o.record_offset, o.published_at, o.record_key, o.record_id, o.metadata, o.failure,
      o.payload
    FROM log_records AS o
    WHERE o.partition_id = i.partition_id AND o.record_offset >= i.first_offset
      AND o.record_offset <= i.last_offset
      AND (o.only_group_id IS NULL OR o.only_group_id = i.group_id)
    ORDER BY o.record_offset) AS r ON true
  CROSS JOIN LATERAL (
    SELECT octet_length(r.payload) + coalesce(octet_length(r.metadata), 0) + 64 AS size) AS z) AS s
WHERE s.total - s.size < $5

-- name: store
-- params: group_ids, partition_ids, versions, watermarks, heads, deliveries, barriers, lows, highs, spans
-- Stores positions, all or none: none if one has changed meanwhile. Locks in the common order. The
-- spans of each are a slice of one array. Returns the count.
WITH given AS MATERIALIZED (
  SELECT i.* FROM unnest($1::text::int[], $2::text::bigint[], $3::text::bigint[], $4::text::bigint[],
      $5::text::bigint[], $6::text::bigint[], $7::text::bigint[], $8::text::int[], $9::text::int[])
    AS i (group_id, partition_id, version, watermark, head, deliveries, barrier, low, high)
), spans AS MATERIALIZED (
  SELECT $10::text::bigint[] AS numbers
), same AS MATERIALIZED (
  SELECT p.group_id, p.partition_id
  FROM given AS i
  JOIN log_positions AS p ON p.group_id = i.group_id AND p.partition_id = i.partition_id
    AND p.xmin::text::bigint = i.version
  ORDER BY p.group_id, p.partition_id FOR NO KEY UPDATE OF p
), stored AS (
  UPDATE log_positions AS p
  SET watermark = i.watermark, head = i.head, deliveries = i.deliveries,
    barrier_until = to_timestamp(nullif(i.barrier, 0) / 1000.0),
    spans = (SELECT spans.numbers FROM spans)[i.low:i.high]
  FROM given AS i
  WHERE p.group_id = i.group_id AND p.partition_id = i.partition_id
    AND (SELECT count(*) FROM same) = (SELECT count(*) FROM given)
  RETURNING 1
)
SELECT count(*) FROM stored

-- name: lock_held
-- params: now, group_id, subscriber_name, session
-- Locks and returns the positions that a subscriber holds and in which records may be in flight.
SELECT p.partition_id, p.xmin::text::bigint AS version, p.held_since,
  (extract(epoch FROM coalesce($1::timestamptz, present())) * 1000)::bigint AS now_ms, p.watermark,
  p.head, p.deliveries, coalesce((extract(epoch FROM p.barrier_until) * 1000)::bigint, 0) AS barrier,
  p.spans
FROM log_subscribers AS s
JOIN log_positions AS p ON p.group_id = s.group_id AND p.held_by = s.subscriber_name
WHERE s.group_id = $2 AND s.subscriber_name = $3 AND s.session = $4 AND p.spans <> '{}'
ORDER BY p.partition_id FOR NO KEY UPDATE OF p
