-- Dead letters: records that a group gave up, in another log.

-- name: read_records
-- params: partition_ids, offsets
-- Returns the retained ones of these records.
SELECT (i.place - 1)::int AS place, coalesce(r.record_key, p.partition_key) AS record_key,
  r.record_id, r.metadata, r.failure, r.payload
FROM unnest($1::bigint[], $2::bigint[]) WITH ORDINALITY AS i (partition_id, record_offset, place)
JOIN log_records AS r
  ON r.partition_id = i.partition_id AND r.record_offset = i.record_offset
JOIN log_partitions AS p ON p.partition_id = r.partition_id
WHERE r.record_offset >= p.start_offset AND NOT p.is_removed
ORDER BY i.place

-- name: list_records
-- params: log_id, original_topic, original_group, limit
-- As `first_records`, with all columns of the records.
SELECT r.partition_id, p.number, p.partition_key, r.record_offset, r.published_at, r.record_key,
  r.record_id, r.metadata, r.failure, r.payload
FROM log_partitions AS p
JOIN LATERAL (
  SELECT o.partition_id, o.record_offset, o.published_at, o.record_key, o.record_id, o.metadata,
    o.failure, o.payload
  FROM log_records AS o
  WHERE o.partition_id = p.partition_id AND o.record_offset >= p.start_offset
    AND o.failure::json ->> 'original_topic' = $2
    AND ($3::text IS NULL OR o.failure::json ->> 'original_group' = $3)
  ORDER BY o.record_offset LIMIT $4) AS r ON true
WHERE p.log_id = $1 AND p.next_offset > p.start_offset AND NOT p.is_removed
ORDER BY p.number, r.record_offset LIMIT $4

-- name: first_records
-- params: log_id, original_topic, original_group, limit
-- The oldest dead letters of each partition of a log, at most `limit` in all: those from one log
-- and, unless it is NULL, one group.
SELECT r.partition_id, r.record_offset
FROM log_partitions AS p
JOIN LATERAL (
  SELECT o.partition_id, o.record_offset FROM log_records AS o
  WHERE o.partition_id = p.partition_id AND o.record_offset >= p.start_offset
    AND o.failure::json ->> 'original_topic' = $2
    AND ($3::text IS NULL OR o.failure::json ->> 'original_group' = $3)
  ORDER BY o.record_offset LIMIT $4) AS r ON true
WHERE p.log_id = $1 AND p.next_offset > p.start_offset AND NOT p.is_removed
LIMIT $4

-- name: take_records
-- params: partition_ids, offsets
-- Deletes the retained ones of these records and returns them. Partitions are locked in the order
-- of their ids, as in appends.
WITH partitions AS MATERIALIZED (
  SELECT p.partition_id, p.start_offset FROM log_partitions AS p
  WHERE p.partition_id = ANY($1::bigint[]) AND NOT p.is_removed
  ORDER BY p.partition_id FOR NO KEY UPDATE
), taken AS (
  DELETE FROM log_records AS r
  USING unnest($1::bigint[], $2::bigint[]) AS i (partition_id, record_offset), partitions AS p
  WHERE r.partition_id = i.partition_id AND r.record_offset = i.record_offset
    AND p.partition_id = r.partition_id AND r.record_offset >= p.start_offset
  RETURNING r.partition_id, r.record_offset, r.record_key, r.metadata, r.failure, r.payload
), counted AS (
  UPDATE log_partitions AS p
  SET gap_count = p.gap_count + n.record_count, byte_count = p.byte_count - n.byte_count
  FROM (
    SELECT t.partition_id, count(*) AS record_count,
      sum(octet_length(t.payload) + coalesce(octet_length(t.metadata), 0)) AS byte_count
    FROM taken AS t GROUP BY t.partition_id) AS n
  WHERE p.partition_id = n.partition_id
)
SELECT t.partition_id, t.record_offset, coalesce(t.record_key, p.partition_key) AS record_key,
  t.metadata, t.failure, t.payload
FROM taken AS t JOIN log_partitions AS p ON p.partition_id = t.partition_id
ORDER BY t.partition_id, t.record_offset
