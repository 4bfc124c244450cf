-- Records: appended by a lane, one statement per flush, for many callers and many logs.
-- Retention of logs, and remains of deleted ones.

-- name: append
-- params: now, partition_ids, record_counts, byte_counts, record_partition_ids, places, payloads, keys, metadata
-- Assigns offsets to records without ids, and writes them. The update locks the partitions in the
-- order of the first array, which is by id, and continues from `next_offset` of the previous lock
-- holder. keys and metadata are NULL when no record has any. Returns the existing partitions and
-- the offset of the first record of each; the others got nothing.
WITH clock AS MATERIALIZED (
  SELECT coalesce($1::timestamptz, present()) AS now
), advanced AS MATERIALIZED (
  UPDATE log_partitions AS p
  SET next_offset = p.next_offset + n.record_count, byte_count = p.byte_count + n.byte_count,
    last_published_at = greatest(p.last_published_at, clock.now)
  FROM clock, unnest($2::bigint[], $3::int[], $4::bigint[])
    AS n (partition_id, record_count, byte_count)
  WHERE p.partition_id = n.partition_id AND NOT p.is_removed
  RETURNING p.partition_id, p.next_offset - n.record_count AS first_offset, p.last_published_at
), written AS (
  INSERT INTO log_records (partition_id, record_offset, published_at, record_key, metadata, payload)
  SELECT a.partition_id, a.first_offset + i.place, a.last_published_at, i.record_key, i.metadata,
    i.payload
  FROM unnest($5::bigint[], $6::int[], $7::bytea[], $8::text[], $9::text[])
    AS i (partition_id, place, payload, record_key, metadata)
  JOIN advanced AS a ON a.partition_id = i.partition_id
)
SELECT a.partition_id, a.first_offset FROM advanced AS a

-- name: append_known
-- params: now, partition_ids, record_partition_ids, payloads, keys, record_ids, metadata, failures, only_group_ids
-- As `append` for records with an id, dead letters, and records for one group (functions/logs.sql).
SELECT a.offsets, a.duplicates
FROM append_known_records($1::timestamptz, $2::bigint[], $3::bigint[], $4::bytea[], $5::text[],
  $6::text[], $7::text[], $8::text[], $9::int[]) AS a

-- name: read_ranges
-- params: partition_ids, from_offsets, to_offsets, most_records, most_bytes
-- For each range the start and the next offset of its partition. Then records of the ranges, in
-- order and by offset: at most `most_records` and `most_bytes`, but at least one record. One
-- snapshot: no retained record is missing. Ranges of deleted partitions are left out. `place` is
-- that of the range; the row of a record has no next_offset. Sizes need no read of TOAST data.
WITH wanted AS MATERIALIZED (
  SELECT i.place, i.partition_id, greatest(i.from_offset, p.start_offset) AS from_offset,
    least(i.to_offset, p.next_offset) AS to_offset, p.start_offset, p.next_offset
  FROM unnest($1::bigint[], $2::bigint[], $3::bigint[]) WITH ORDINALITY
    AS i (partition_id, from_offset, to_offset, place)
  JOIN LATERAL (
    SELECT f.start_offset, f.next_offset FROM log_partitions AS f
    WHERE f.partition_id = i.partition_id AND NOT f.is_removed OFFSET 0) AS p ON true
)
SELECT w.place, w.start_offset AS record_offset, w.next_offset, NULL::timestamptz AS published_at,
  NULL AS record_key, NULL AS record_id, NULL AS metadata, NULL AS failure, NULL::bytea AS payload
FROM wanted AS w
UNION ALL
SELECT s.place, s.record_offset, NULL, s.published_at, s.record_key, s.record_id, s.metadata,
  s.failure, s.payload
FROM (
  SELECT w.place, r.record_offset, r.published_at, r.record_key, r.record_id, r.metadata, r.failure,
    r.payload, octet_length(r.payload) + coalesce(octet_length(r.metadata), 0) AS size,
    sum(octet_length(r.payload) + coalesce(octet_length(r.metadata), 0))
      OVER (ROWS UNBOUNDED PRECEDING) AS total
  FROM wanted AS w
  JOIN LATERAL (
    SELECT o.record_offset, o.published_at, o.record_key, o.record_id, o.metadata, o.failure,
      o.payload
    FROM log_records AS o
    WHERE o.partition_id = w.partition_id AND o.record_offset >= w.from_offset
      AND o.record_offset < w.to_offset AND o.only_group_id IS NULL
    ORDER BY o.record_offset LIMIT $4) AS r ON true
  LIMIT $4) AS s
WHERE s.total - s.size < $5

-- name: offsets_at
-- params: partition_ids, at
-- The offset to start at for a time (functions/logs.sql).
SELECT a.partition_id, a.record_offset FROM log_offsets_at($1::bigint[], $2::timestamptz) AS a

-- name: delete_record
-- params: partition_id, record_offset
-- Deletes a retained record and leaves a gap; no row if there is none.
WITH partition AS MATERIALIZED (
  SELECT p.start_offset FROM log_partitions AS p
  WHERE p.partition_id = $1 FOR NO KEY UPDATE
), deleted AS (
  DELETE FROM log_records AS r USING partition
  WHERE r.partition_id = $1 AND r.record_offset = $2 AND r.record_offset >= partition.start_offset
  RETURNING octet_length(r.payload) + coalesce(octet_length(r.metadata), 0) AS size
)
UPDATE log_partitions AS p
SET gap_count = p.gap_count + 1, byte_count = p.byte_count - deleted.size
FROM deleted WHERE p.partition_id = $1
RETURNING p.partition_id

-- name: find_retirable
-- params: now, after_partition_id, limit, account_ids, are_chosen
-- Examines the oldest record of each partition, from one to the next by index. Returns the last
-- partition examined, NULL for none, and those whose oldest record may be retired, in logs of these
-- accounts or of all others (storage.queries).
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
-- Partitions with records below their start, or of deleted logs, with the range to remove.
SELECT p.partition_id, p.swept_offset,
  CASE WHEN p.is_removed THEN p.next_offset ELSE p.start_offset END AS to_offset
FROM log_partitions AS p
WHERE p.swept_offset < p.start_offset OR p.is_removed
ORDER BY p.partition_id LIMIT $1

-- name: remove_records
-- params: partition_ids, from_offsets, to_offsets, limit_each
-- Removes retired records, the oldest first, and records the progress. Returns the count. Partitions
-- that a saved state has brought back meanwhile keep their records.
WITH unswept AS MATERIALIZED (
  SELECT u.partition_id, u.from_offset, u.to_offset
  FROM unnest($1::bigint[], $2::bigint[], $3::bigint[]) AS u (partition_id, from_offset, to_offset)
  JOIN LATERAL (
    SELECT p.start_offset, p.is_removed FROM log_partitions AS p
    WHERE p.partition_id = u.partition_id OFFSET 0) AS k
    ON k.is_removed OR u.to_offset <= k.start_offset
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
