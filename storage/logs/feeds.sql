-- Groups that feed queues: claim and read records not moved yet.

-- name: find_feeds
-- params:
-- All groups that feed queues, with their logs.
SELECT l.log_id, l.account_id, l.region, l.log_name, l.created_at, l.partition_count,
  l.retain_consumed_seconds, l.max_age_seconds, l.max_bytes, g.group_id, g.log_id,
  g.group_name, g.created_at AS group_created_at, g.settings
FROM log_groups AS g JOIN logs AS l ON l.log_id = g.log_id
WHERE g.settings ? 'queue' AND l.deleted_at IS NULL
ORDER BY g.group_id

-- name: lacks_positions
-- params: group_id
-- Returns true if the group has no position yet in some partition.
SELECT g.position_count < l.next_partition
FROM log_groups AS g JOIN logs AS l ON l.log_id = g.log_id
WHERE g.group_id = $1

-- name: find_places
-- params: group_id, first_number, limit
-- The partitions from this number on, and whether the group has records to move there.
SELECT q.partition_id, q.number, q.next_offset - 1 > p.watermark AS is_behind
FROM log_groups AS g
JOIN log_partitions AS q ON q.log_id = g.log_id AND q.number >= $2
JOIN log_positions AS p ON p.group_id = $1 AND p.partition_id = q.partition_id
WHERE g.group_id = $1 AND NOT q.is_removed
ORDER BY q.number LIMIT $3

-- name: claim
-- params: now, group_id, partition_ids, queue_name
-- Those of these partitions with records to move; none if the group no longer feeds that queue.
-- Locks their positions in the common order; where another session holds the lock, the version is
-- NULL.
WITH behind AS MATERIALIZED (
  SELECT p.partition_id, q.number, q.partition_key, q.start_offset, q.next_offset
  FROM log_groups AS g CROSS JOIN unnest($3::bigint[]) AS i (partition_id)
  JOIN log_positions AS p ON p.group_id = $2 AND p.partition_id = i.partition_id
  JOIN log_partitions AS q ON q.partition_id = p.partition_id
  WHERE g.group_id = $2 AND g.settings ->> 'queue' = $4 AND q.next_offset - 1 > p.watermark
    AND NOT q.is_removed
), locked AS MATERIALIZED (
  SELECT p.partition_id, p.xmin::text::bigint AS version, p.watermark, p.head, p.deliveries,
    coalesce((extract(epoch FROM p.barrier_until) * 1000)::bigint, 0) AS barrier, p.spans
  FROM log_positions AS p
  WHERE p.group_id = $2 AND p.partition_id = ANY(ARRAY(SELECT b.partition_id FROM behind AS b))
  ORDER BY p.partition_id FOR NO KEY UPDATE SKIP LOCKED
)
SELECT (extract(epoch FROM coalesce($1::timestamptz, present())) * 1000)::bigint AS now_ms,
  b.partition_id, b.number, b.partition_key, b.start_offset, b.next_offset, l.version, l.watermark,
  l.head, l.deliveries, l.barrier, l.spans
FROM behind AS b LEFT JOIN locked AS l ON l.partition_id = b.partition_id
ORDER BY b.partition_id

-- name: read_feed
-- params: group_id, partition_ids, first_offsets, end_offsets, most_of_each, most_bytes
-- Returns the first records of these ranges for the group: at most `most_bytes`, but at least one
-- record. Sizes need no read of TOAST data.
SELECT s.place, s.record_offset, s.published_at, s.record_key, s.record_id, s.metadata, s.failure,
  s.payload
FROM (
  SELECT (i.place - 1)::int AS place, r.record_offset, r.published_at, r.record_key, r.record_id,
    r.metadata, r.failure, r.payload, z.size, sum(z.size) OVER (ROWS UNBOUNDED PRECEDING) AS total
  FROM unnest($2::bigint[], $3::bigint[], $4::bigint[]) WITH ORDINALITY
    AS i (partition_id, first_offset, end_offset, place)
  JOIN LATERAL (
    SELECT o.record_offset, o.published_at, o.record_key, o.record_id, o.metadata, o.failure,
      o.payload
    FROM log_records AS o
    WHERE o.partition_id = i.partition_id AND o.record_offset >= i.first_offset
      AND o.record_offset < i.end_offset
      AND (o.only_group_id IS NULL OR o.only_group_id = $1)
    ORDER BY o.record_offset LIMIT $5) AS r ON true
  CROSS JOIN LATERAL (
    SELECT octet_length(r.payload) + coalesce(octet_length(r.metadata), 0) + 64 AS size) AS z) AS s
WHERE s.total - s.size < $6
