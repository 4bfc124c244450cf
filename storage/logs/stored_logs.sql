-- Logs as a whole, and their partitions.
-- Gauges of consumer groups, for /metrics.

-- name: find_log
-- params: account_id, region, log_name
-- The live log of that name.
SELECT l.log_id, l.account_id, l.region, l.log_name, l.created_at, l.partition_count,
  l.retain_consumed_seconds, l.max_age_seconds, l.max_bytes
FROM logs AS l
WHERE l.account_id = $1 AND l.region = $2 AND l.log_name = $3 AND l.deleted_at IS NULL

-- name: list_logs
-- params: account_id, region, prefix, after, limit
-- Live logs by name.
SELECT l.log_id, l.account_id, l.region, l.log_name, l.created_at, l.partition_count,
  l.retain_consumed_seconds, l.max_age_seconds, l.max_bytes
FROM logs AS l
WHERE l.account_id = $1 AND l.region = $2 AND starts_with(l.log_name, $3) AND l.log_name > $4
  AND l.log_name >= $3 AND l.deleted_at IS NULL
ORDER BY l.log_name LIMIT $5

-- name: insert_log
-- params: now, account_id, region, log_name, partition_count, retain_consumed_seconds, max_age_seconds, max_bytes
-- Creates a log; no row if the name exists, also in a concurrent transaction. A log with a fixed
-- number of partitions gets them at once.
WITH made AS (
  INSERT INTO logs (account_id, region, log_name, created_at, partition_count, next_partition,
    retain_consumed_seconds, max_age_seconds, max_bytes)
  VALUES ($2, $3, $4, coalesce($1::timestamptz, present()), $5::int, coalesce($5::int, 0), $6::int,
    $7::int, $8::bigint)
  ON CONFLICT (account_id, region, log_name) WHERE deleted_at IS NULL DO NOTHING
  RETURNING log_id, account_id, region, log_name, created_at, partition_count,
    retain_consumed_seconds, max_age_seconds, max_bytes
), partitions AS (
  INSERT INTO log_partitions (log_id, number)
  SELECT made.log_id, n.number FROM made, generate_series(0, $5::int - 1) AS n (number)
  ORDER BY n.number
)
SELECT made.log_id, made.account_id, made.region, made.log_name, made.created_at,
  made.partition_count, made.retain_consumed_seconds, made.max_age_seconds, made.max_bytes
FROM made

-- name: update_log
-- params: log_id, retain_consumed_seconds, max_age_seconds, max_bytes
-- Replaces the settings of a live log.
UPDATE logs SET retain_consumed_seconds = $2, max_age_seconds = $3, max_bytes = $4
WHERE log_id = $1 AND deleted_at IS NULL
RETURNING log_id

-- name: lock_log
-- params: log_id
-- Locks the log against new partitions, changes and deletion until the transaction ends. Returns
-- its partition count; no row if it is deleted.
SELECT l.next_partition FROM logs AS l
WHERE l.log_id = $1 AND l.deleted_at IS NULL FOR NO KEY UPDATE

-- name: find_partitions
-- params: log_id, keys
-- The partitions of these keys.
SELECT p.partition_id, p.number, p.partition_key
FROM unnest($2::text[]) AS k (partition_key)
JOIN LATERAL (
  SELECT f.partition_id, f.number, f.partition_key FROM log_partitions AS f
  WHERE f.log_id = $1 AND f.partition_key = k.partition_key OFFSET 0) AS p ON true

-- name: make_partitions
-- params: log_id, keys
-- Creates partitions for new keys, numbered in the order of the array, in a locked log.
WITH log AS (
  UPDATE logs SET next_partition = next_partition + cardinality($2::text[])
  WHERE log_id = $1
  RETURNING next_partition - cardinality($2::text[]) AS first
)
INSERT INTO log_partitions (log_id, number, partition_key)
SELECT $1, log.first + k.place - 1, k.partition_key
FROM log, unnest($2::text[]) WITH ORDINALITY AS k (partition_key, place)
ORDER BY k.place
RETURNING partition_id, number, partition_key

-- name: find_numbered
-- params: log_id, numbers
-- The partitions of these numbers.
SELECT p.partition_id, p.number, p.partition_key
FROM log_partitions AS p WHERE p.log_id = $1 AND p.number = ANY($2::int[])

-- name: partition_states
-- params: log_id, after, limit
-- The contents of partitions, by number.
SELECT p.partition_id, p.number, p.partition_key, p.start_offset, p.next_offset, p.gap_count,
  p.byte_count, nullif(p.last_published_at, '-infinity') AS last_published_at
FROM log_partitions AS p
WHERE p.log_id = $1 AND p.number > $2 ORDER BY p.number LIMIT $3

-- name: count_logs
-- params: log_ids
-- The counts of logs, in the order of the array. Reads the oldest record of each partition, by key.
SELECT counted.partition_count, counted.record_count, counted.byte_count, counted.oldest_at,
  (SELECT count(*) FROM log_groups AS g WHERE g.log_id = i.log_id)::int AS group_count
FROM unnest($1::int[]) WITH ORDINALITY AS i (log_id, place)
CROSS JOIN LATERAL (
  SELECT count(*)::int AS partition_count,
    coalesce(sum(p.next_offset - p.start_offset - p.gap_count), 0)::bigint AS record_count,
    coalesce(sum(p.byte_count), 0)::bigint AS byte_count, min(oldest.published_at) AS oldest_at
  FROM log_partitions AS p
  LEFT JOIN LATERAL (
    SELECT r.published_at FROM log_records AS r
    WHERE r.partition_id = p.partition_id AND r.record_offset >= p.start_offset
    ORDER BY r.record_offset LIMIT 1) AS oldest ON p.next_offset > p.start_offset
  WHERE p.log_id = i.log_id) AS counted
ORDER BY i.place

-- name: delete_log
-- params: now, log_id
-- Frees the name and ends appends; the records are deleted later. The caller locks the log and has
-- deleted its groups. Partitions are locked in the order of their ids, as in appends.
WITH log AS (
  UPDATE logs SET deleted_at = coalesce($1::timestamptz, present()) WHERE log_id = $2
), locked AS MATERIALIZED (
  SELECT p.partition_id FROM log_partitions AS p WHERE p.log_id = $2
  ORDER BY p.partition_id FOR NO KEY UPDATE
)
UPDATE log_partitions SET is_removed = true
WHERE partition_id = ANY(ARRAY(SELECT locked.partition_id FROM locked))

-- name: purge_log
-- params: log_id
-- Moves the start of each partition behind all records, which are deleted later. Returns the count.
WITH locked AS MATERIALIZED (
  SELECT p.partition_id, p.next_offset - p.start_offset - p.gap_count AS record_count
  FROM log_partitions AS p
  WHERE p.log_id = $1 AND p.next_offset > p.start_offset AND NOT p.is_removed
  ORDER BY p.partition_id FOR NO KEY UPDATE
), purged AS (
  UPDATE log_partitions SET start_offset = next_offset, gap_count = 0, byte_count = 0
  WHERE partition_id = ANY(ARRAY(SELECT locked.partition_id FROM locked))
)
SELECT coalesce(sum(locked.record_count), 0)::bigint FROM locked

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
