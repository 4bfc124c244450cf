-- Groups of logs, and their positions.
-- Subscribers of groups, and their partitions. A lease is `held_by` of a position, and is live as
-- long as the subscriber: a renewal touches one row, however many are held.

-- name: find_group
-- params: log_id, group_name
-- The group of that name.
SELECT g.group_id, g.log_id, g.group_name, g.created_at, g.settings
FROM log_groups AS g WHERE g.log_id = $1 AND g.group_name = $2

-- name: list_groups
-- params: log_id
-- All groups of a log, by name.
SELECT g.group_id, g.log_id, g.group_name, g.created_at, g.settings
FROM log_groups AS g WHERE g.log_id = $1 ORDER BY g.group_name

-- name: insert_group
-- params: now, log_id, group_name, start_at, settings
-- Creates a group in a locked log, at the present if start_at is NULL; no row if the name exists.
INSERT INTO log_groups (log_id, group_name, created_at, start_at, settings)
SELECT $2, $3, clock.now, coalesce($4::timestamptz, clock.now), $5::jsonb
FROM (SELECT coalesce($1::timestamptz, present()) AS now) AS clock
ON CONFLICT (log_id, group_name) DO NOTHING
RETURNING group_id, log_id, group_name, created_at, settings

-- name: update_group
-- params: group_id, settings
-- Replaces the settings of a group; no row if it is deleted.
UPDATE log_groups SET settings = $2::jsonb WHERE group_id = $1 RETURNING group_id

-- name: lock_groups
-- params: log_id
-- Locks the assignments of all groups of a log until the transaction ends.
SELECT g.group_id FROM log_groups AS g WHERE g.log_id = $1 ORDER BY g.group_id FOR NO KEY UPDATE

-- name: delete_groups
-- params: group_ids
-- Deletes groups with their positions and subscribers. The caller locks the groups, so that no
-- positions are being created. Positions are locked in storage order.
WITH locked AS MATERIALIZED (
  SELECT p.group_id, p.partition_id FROM log_positions AS p WHERE p.group_id = ANY($1::int[])
  ORDER BY p.group_id, p.partition_id FOR UPDATE
), positions AS (
  DELETE FROM log_positions AS p
  WHERE p.group_id = ANY($1::int[]) AND (SELECT count(*) FROM locked) > 0
), subscribers AS (
  DELETE FROM log_subscribers WHERE group_id = ANY($1::int[])
)
DELETE FROM log_groups WHERE group_id = ANY($1::int[])

-- name: lock_group
-- params: group_id
-- Locks the assignments of a group until the transaction ends.
SELECT g.log_id FROM log_groups AS g WHERE g.group_id = $1 FOR NO KEY UPDATE

-- name: make_positions
-- params: group_id
-- Creates the missing positions (functions/log_groups.sql). Returns their total.
SELECT make_positions($1::int)

-- name: seek_all
-- params: group_id, next_offset
-- Sets all positions to the retained offset nearest to this one. The caller locks the group, which
-- has all its positions; they are locked in storage order.
WITH places AS MATERIALIZED (
  SELECT p.partition_id,
    greatest(least($2::bigint, q.next_offset), q.start_offset) - 1 AS last_offset
  FROM log_positions AS p JOIN log_partitions AS q ON q.partition_id = p.partition_id
  WHERE p.group_id = $1 ORDER BY p.partition_id FOR NO KEY UPDATE OF p
)
UPDATE log_positions AS p
SET watermark = i.last_offset, head = i.last_offset, spans = '{}', barrier_until = NULL
FROM places AS i WHERE p.group_id = $1 AND p.partition_id = i.partition_id

-- name: seek_offsets
-- params: group_id, partition_ids, offsets
-- Sets these positions to these offsets, as above. Returns the partitions found.
WITH places AS MATERIALIZED (
  SELECT p.partition_id,
    greatest(least(i.next_offset, q.next_offset), q.start_offset) - 1 AS last_offset
  FROM unnest($2::bigint[], $3::bigint[]) AS i (partition_id, next_offset)
  JOIN log_positions AS p ON p.group_id = $1 AND p.partition_id = i.partition_id
  JOIN log_partitions AS q ON q.partition_id = p.partition_id
  ORDER BY p.partition_id FOR NO KEY UPDATE OF p
)
UPDATE log_positions AS p
SET watermark = i.last_offset, head = i.last_offset, spans = '{}', barrier_until = NULL
FROM places AS i WHERE p.group_id = $1 AND p.partition_id = i.partition_id
RETURNING p.partition_id

-- name: offsets_at
-- params: group_id, at
-- For each position, the offset of the first record published then or later.
SELECT a.partition_id, a.record_offset
FROM log_offsets_at(
  ARRAY(SELECT p.partition_id FROM log_positions AS p WHERE p.group_id = $1), $2::timestamptz) AS a

-- name: find_held
-- params: now, group_id, partition_ids
-- The number of one of these partitions that a live subscriber holds.
SELECT p.number FROM log_positions AS p
JOIN log_subscribers AS s ON s.group_id = p.group_id AND s.subscriber_name = p.held_by
WHERE p.group_id = $2 AND p.partition_id = ANY($3::bigint[])
  AND s.live_until > coalesce($1::timestamptz, present())
ORDER BY p.number LIMIT 1

-- name: progress
-- params: now, group_id
-- The progress of a group in its whole log: offsets beyond its watermarks, and the publish time of
-- the oldest record there. Without a position, all retained records count.
SELECT coalesce(sum(q.next_offset - 1 - w.watermark), 0)::bigint AS lag,
  min(oldest.published_at) AS oldest_at,
  (extract(epoch FROM coalesce($1::timestamptz, present())) * 1000)::bigint AS now_ms
FROM log_groups AS g
JOIN log_partitions AS q ON q.log_id = g.log_id AND NOT q.is_removed
LEFT JOIN log_positions AS p ON p.group_id = g.group_id AND p.partition_id = q.partition_id
CROSS JOIN LATERAL (
  SELECT greatest(p.watermark, q.start_offset - 1) AS watermark) AS w
LEFT JOIN LATERAL (
  SELECT r.published_at FROM log_records AS r
  WHERE r.partition_id = q.partition_id AND r.record_offset > w.watermark
  ORDER BY r.record_offset LIMIT 1) AS oldest ON q.next_offset - 1 > w.watermark
WHERE g.group_id = $2

-- name: spans
-- params: group_id
-- The positions with spans between watermark and head, and the starts of their partitions.
SELECT p.watermark, p.head, p.spans, q.start_offset
FROM log_positions AS p JOIN log_partitions AS q ON q.partition_id = p.partition_id
WHERE p.group_id = $1 AND p.spans <> '{}'

-- name: position_states
-- params: now, group_id, after, limit
-- The position of a group in each partition, by number.
SELECT q.number, q.partition_key, greatest(p.watermark, q.start_offset - 1) AS watermark,
  q.next_offset, coalesce(p.head, -1) AS head, coalesce(p.spans, '{}') AS spans, p.watermark AS base,
  s.subscriber_name AS held_by, p.barrier_until,
  (extract(epoch FROM clock.now) * 1000)::bigint AS now_ms
FROM (SELECT coalesce($1::timestamptz, present()) AS now) AS clock
CROSS JOIN log_groups AS g
JOIN log_partitions AS q ON q.log_id = g.log_id AND NOT q.is_removed
LEFT JOIN log_positions AS p ON p.group_id = g.group_id AND p.partition_id = q.partition_id
LEFT JOIN log_subscribers AS s
  ON s.group_id = g.group_id AND s.subscriber_name = p.held_by AND s.live_until > clock.now
WHERE g.group_id = $2 AND q.number > $3
ORDER BY q.number LIMIT $4

-- name: beat
-- params: now, group_id, subscriber_name, session, lease_seconds
-- Renews the lease of a subscriber. `is_settled`: no subscriber joined, left or died since the last
-- rebalancing, there are no new partitions, and no partition that it lacks is free.
WITH clock AS MATERIALIZED (
  SELECT coalesce($1::timestamptz, present()) AS now
)
UPDATE log_subscribers AS s SET live_until = clock.now + make_interval(secs => $5::float)
FROM clock, log_groups AS g JOIN logs AS l ON l.log_id = g.log_id
WHERE s.group_id = $2 AND s.subscriber_name = $3 AND s.session = $4 AND g.group_id = $2
RETURNING s.live_until,
  (l.next_partition + g.live_subscribers - 1) / greatest(g.live_subscribers, 1) AS share,
  s.balanced_generation = g.generation
  AND s.balanced_partitions = l.next_partition
  AND NOT (s.is_short AND EXISTS (
    SELECT 1 FROM log_positions AS p WHERE p.group_id = $2 AND p.held_by IS NULL))
  AND NOT EXISTS (
    SELECT 1 FROM log_subscribers AS o WHERE o.group_id = $2 AND o.live_until <= clock.now
      AND o.subscriber_name <> $3) AS is_settled, g.live_subscribers

-- name: join_group
-- params: now, group_id, subscriber_name, session, lease_seconds
-- Starts a session; 0 if the group is deleted, NULL if another session is live.
SELECT join_group($1::timestamptz, $2::int, $3::text, $4::bigint, $5::float)

-- name: balance
-- params: now, group_id, subscriber_name, session
-- Assigns the share of a subscriber (functions/log_groups.sql).
SELECT b.share, b.taken, b.released, b.removed
FROM balance_subscriber($1::timestamptz, $2::int, $3::text, $4::bigint) AS b

-- name: leave
-- params: group_id, subscriber_name, session
-- Frees the partitions of a subscriber.
SELECT leave_group($1::int, $2::text, $3::bigint)

-- name: held
-- params: group_id, subscriber_name
-- The partitions of a subscriber.
SELECT p.partition_id, p.number, q.partition_key
FROM log_positions AS p
JOIN LATERAL (
  SELECT f.partition_key FROM log_partitions AS f WHERE f.partition_id = p.partition_id OFFSET 0) AS q
  ON true
WHERE p.group_id = $1 AND p.held_by = $2
ORDER BY p.number

-- name: list_subscribers
-- params: now, group_id
-- The live subscribers, and the partition count of each.
SELECT s.subscriber_name, s.live_until, (
  SELECT count(*) FROM log_positions AS p
  WHERE p.group_id = $2 AND p.held_by = s.subscriber_name)::int AS partition_count
FROM log_subscribers AS s
WHERE s.group_id = $2 AND s.live_until > coalesce($1::timestamptz, present())
ORDER BY s.subscriber_name
