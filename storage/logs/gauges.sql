-- Gauges of consumer groups, for /metrics.

-- name: of_groups
-- params: now, most_groups, most_partitions
-- The oldest groups: their lag and partitions held. Stops when the groups before have so many
-- partitions together. Without a position, all retained records count. One probe for each partition
-- in which a group lags.
WITH clock AS MATERIALIZED (
  SELECT coalesce($1::timestamptz, present()) AS now
), counted AS (
  SELECT g.group_id, g.group_name, g.generation, g.settings ->> 'queue' AS queue_name, l.log_id,
    l.account_id, l.region, l.log_name,
    sum(l.next_partition) OVER (ORDER BY g.group_id) - l.next_partition AS before
  FROM log_groups AS g JOIN logs AS l ON l.log_id = g.log_id
  WHERE l.deleted_at IS NULL ORDER BY g.group_id LIMIT $2
), chosen AS MATERIALIZED (
  SELECT c.* FROM counted AS c WHERE c.before < $3
)
SELECT c.account_id, c.region, c.log_name, c.group_name, c.generation, s.lag,
  coalesce(greatest(date_part('epoch', clock.now - s.oldest_at), 0), 0) AS watermark_age_seconds,
  u.subscribers,
  u.held, s.partitions - u.held AS free,
  CASE WHEN c.queue_name IS NOT NULL THEN NOT EXISTS (
    SELECT 1 FROM queues AS f
    WHERE f.account_id = c.account_id AND f.region = c.region AND f.queue_name = c.queue_name
      AND f.deleted_at IS NULL)
  END AS waits_for_queue
FROM clock, chosen AS c,
LATERAL (
  SELECT coalesce(sum(q.next_offset - 1 - w.watermark), 0)::bigint AS lag,
    min(oldest.published_at) AS oldest_at, count(*) AS partitions
  FROM log_partitions AS q
  LEFT JOIN log_positions AS p ON p.group_id = c.group_id AND p.partition_id = q.partition_id
  CROSS JOIN LATERAL (
    SELECT greatest(p.watermark, q.start_offset - 1) AS watermark) AS w
  LEFT JOIN LATERAL (
    SELECT r.published_at FROM log_records AS r
    WHERE r.partition_id = q.partition_id AND r.record_offset > w.watermark
    ORDER BY r.record_offset LIMIT 1) AS oldest ON q.next_offset - 1 > w.watermark
  WHERE q.log_id = c.log_id AND NOT q.is_removed) AS s,
LATERAL (
  SELECT count(*) AS subscribers, coalesce(sum(h.held), 0)::bigint AS held
  FROM log_subscribers AS o
  CROSS JOIN LATERAL (
    SELECT count(*) AS held FROM log_positions AS p
    WHERE p.group_id = o.group_id AND p.held_by = o.subscriber_name) AS h
  WHERE o.group_id = c.group_id AND o.live_until > clock.now) AS u
ORDER BY c.group_id

-- name: live_groups
-- params: group_ids
-- Returns the existing groups.
SELECT g.group_id FROM log_groups AS g WHERE g.group_id = ANY($1::int[])
