-- Logs as a whole, and their partitions.
-- Every statement that needs the time takes `now`; NULL means the clock of the database.

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
-- Creates partitions for keys without one, numbered in the order of the array: the caller locks the
-- log.
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
