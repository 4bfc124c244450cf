-- Records: appended by a lane, one statement per flush, for many callers and many logs.
-- Every statement that needs the time takes `now`; NULL means the clock of the database.

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
