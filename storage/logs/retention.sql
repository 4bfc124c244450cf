-- Retention of logs, and remains of deleted ones.
-- Every statement that needs the time takes `now`; NULL means the clock of the database.

-- name: find_retirable
-- params: now, after_partition_id, limit, account_ids, are_chosen
-- Examines the oldest record of each partition, from one to the next by index. Returns the last
-- partition examined, NULL for none, and those whose oldest record may be retired, in logs of these
-- accounts or of all others (storage.clocks.whose).
WITH page AS MATERIALIZED (
  SELECT p.partition_id, p.log_id FROM log_partitions AS p
  WHERE p.partition_id > $2 ORDER BY p.partition_id LIMIT $3
), retirable AS MATERIALIZED (
  SELECT c.partition_id
  FROM log_cutoffs($1::timestamptz, ARRAY(
    SELECT page.partition_id FROM page JOIN logs AS l ON l.log_id = page.log_id
    WHERE (l.account_id = ANY($4::text[])) = $5::boolean)) AS c
  CROSS JOIN LATERAL (
    SELECT r.record_offset, r.published_at FROM log_records AS r
    WHERE r.partition_id = c.partition_id AND r.record_offset >= c.start_offset
    ORDER BY r.record_offset LIMIT 1) AS oldest
  WHERE oldest.published_at <= c.age_cutoff OR c.excess_bytes > 0
    OR (oldest.published_at <= c.consumed_cutoff AND oldest.record_offset < c.consumed_to)
)
SELECT (SELECT max(page.partition_id) FROM page) AS last_partition_id,
  ARRAY(SELECT retirable.partition_id FROM retirable ORDER BY retirable.partition_id)
    AS partition_ids

-- name: lock_partitions
-- params: partition_ids
-- Locks these partitions against appends until the transaction ends.
SELECT p.partition_id FROM log_partitions AS p
WHERE p.partition_id = ANY($1::bigint[]) ORDER BY p.partition_id FOR NO KEY UPDATE

-- name: retire
-- params: now, partition_ids, limit_each
-- Moves the start of locked partitions past retention, by at most `limit_each` records; these are
-- hidden at once and removed later. Returns the count of each.
WITH retired AS MATERIALIZED (
  SELECT c.partition_id, d.next_start, d.record_count, d.byte_count
  FROM log_cutoffs($1::timestamptz, $2::bigint[]) AS c
  CROSS JOIN LATERAL (
    SELECT max(o.record_offset) + 1 AS next_start, count(*) AS record_count,
      sum(o.size) AS byte_count
    FROM (
      SELECT r.record_offset, r.published_at, r.size,
        sum(r.size) OVER (ORDER BY r.record_offset) AS total
      FROM (
        SELECT f.record_offset, f.published_at,
          octet_length(f.payload) + coalesce(octet_length(f.metadata), 0) AS size
        FROM log_records AS f
        WHERE f.partition_id = c.partition_id AND f.record_offset >= c.start_offset
        ORDER BY f.record_offset LIMIT $3) AS r) AS o
    WHERE o.published_at <= c.age_cutoff OR o.total - o.size < c.excess_bytes
      OR (o.published_at <= c.consumed_cutoff AND o.record_offset < c.consumed_to)) AS d
  WHERE d.record_count > 0
)
UPDATE log_partitions AS p
SET start_offset = retired.next_start, byte_count = p.byte_count - retired.byte_count,
  gap_count = p.gap_count - (retired.next_start - p.start_offset - retired.record_count)
FROM retired WHERE p.partition_id = retired.partition_id
RETURNING retired.record_count

-- name: find_unswept
-- params: limit
-- Partitions with records below their start, or of deleted logs, by index; with the range to
-- remove.
SELECT p.partition_id, p.swept_offset,
  CASE WHEN p.is_removed THEN p.next_offset ELSE p.start_offset END AS to_offset
FROM log_partitions AS p
WHERE p.swept_offset < p.start_offset OR p.is_removed
ORDER BY p.partition_id LIMIT $1

-- name: remove_records
-- params: partition_ids, from_offsets, to_offsets, limit_each
-- Removes retired records, the oldest of each partition first, and records the progress. Returns
-- the count.
WITH unswept AS MATERIALIZED (
  SELECT u.partition_id, u.from_offset, u.to_offset
  FROM unnest($1::bigint[], $2::bigint[], $3::bigint[]) AS u (partition_id, from_offset, to_offset)
), doomed AS MATERIALIZED (
  SELECT r.place, r.record_offset, u.partition_id
  FROM unswept AS u
  CROSS JOIN LATERAL (
    SELECT o.ctid AS place, o.record_offset FROM log_records AS o
    WHERE o.partition_id = u.partition_id AND o.record_offset >= u.from_offset
      AND o.record_offset < u.to_offset
    ORDER BY o.record_offset LIMIT $4) AS r
), removed AS (
  DELETE FROM log_records WHERE ctid = ANY(ARRAY(SELECT doomed.place FROM doomed))
), marked AS (
  UPDATE log_partitions AS p
  SET swept_offset = greatest(p.swept_offset, f.swept_offset)
  FROM (
    SELECT u.partition_id,
      CASE WHEN count(d.place) < $4 THEN u.to_offset ELSE max(d.record_offset) + 1 END
        AS swept_offset
    FROM unswept AS u LEFT JOIN doomed AS d ON d.partition_id = u.partition_id
    GROUP BY u.partition_id, u.to_offset
    ORDER BY u.partition_id) AS f
  WHERE p.partition_id = f.partition_id
)
SELECT count(*)::int FROM doomed

-- name: remove_partitions
-- params: partition_ids
-- Removes the partitions of deleted logs without records.
DELETE FROM log_partitions
WHERE partition_id = ANY($1::bigint[]) AND is_removed AND swept_offset >= next_offset

-- name: remove_logs
-- params: limit
-- Removes deleted logs without partitions. Returns the count.
WITH removed AS (
  DELETE FROM logs AS l
  WHERE l.log_id = ANY(ARRAY(
    SELECT d.log_id FROM logs AS d
    WHERE d.deleted_at IS NOT NULL AND NOT EXISTS (
      SELECT 1 FROM log_partitions AS p WHERE p.log_id = d.log_id)
    ORDER BY d.log_id LIMIT $1))
  RETURNING l.log_id
)
SELECT count(*)::int FROM removed
