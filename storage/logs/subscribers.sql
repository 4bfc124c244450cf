-- Subscribers of groups, and their partitions. A lease is `held_by` of a position, and is live as
-- long as the subscriber: a renewal touches one row, however many are held.
-- Every statement that needs the time takes `now`; NULL means the clock of the database.

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
