-- revision 2

-- Appends records some of which have ids: one that is there under its id, in the same partition and
-- with the same key, is not written again. What was there is looked for behind the locks, by a
-- statement that sees what whoever had them before has committed. Within one call each id comes once.
--
-- p_partition_ids: those of the records, each once, in order. The other arrays have one element for
-- each record; offsets are NULL where the partition is gone, and then nothing is written at all.
CREATE OR REPLACE FUNCTION append_known_records(
  p_now timestamptz, p_partition_ids bigint[], p_record_partition_ids bigint[], p_payloads bytea[],
  p_keys text[], p_record_ids text[], p_metadata text[], p_failures text[], p_only_group_ids int[],
  OUT offsets bigint[], OUT duplicates boolean[]
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  v_now timestamptz := coalesce(p_now, present());
  v_known bigint[];
BEGIN
  PERFORM 1 FROM log_partitions AS p
  WHERE p.partition_id = ANY(p_partition_ids) AND NOT p.is_removed
  ORDER BY p.partition_id FOR NO KEY UPDATE;

  SELECT array_agg(known.record_offset ORDER BY i.place) INTO v_known
  FROM unnest(p_record_partition_ids, p_record_ids, p_keys)
    WITH ORDINALITY AS i (partition_id, record_id, record_key, place)
  LEFT JOIN LATERAL (
    SELECT r.record_offset FROM log_records AS r
    JOIN log_partitions AS p ON p.partition_id = r.partition_id
    WHERE r.partition_id = i.partition_id AND r.record_id = i.record_id
      AND coalesce(r.record_key, '') = coalesce(i.record_key, '')
      AND r.record_offset >= p.start_offset AND NOT p.is_removed
    LIMIT 1) AS known ON i.record_id IS NOT NULL;

  WITH given AS MATERIALIZED (
    SELECT i.*, row_number() OVER (
        PARTITION BY i.partition_id, i.known IS NULL ORDER BY i.place) - 1 AS place_in_partition
    FROM unnest(p_record_partition_ids, p_payloads, p_keys, p_record_ids, p_metadata, p_failures,
        p_only_group_ids, v_known)
      WITH ORDINALITY AS i (partition_id, payload, record_key, record_id, metadata, failure,
        only_group_id, known, place)
  ), advanced AS (
    UPDATE log_partitions AS p
    SET next_offset = p.next_offset + n.record_count, byte_count = p.byte_count + n.byte_count,
      last_published_at = greatest(p.last_published_at, v_now)
    FROM (
      SELECT g.partition_id, count(*) AS record_count,
        sum(octet_length(g.payload) + coalesce(octet_length(g.metadata), 0)) AS byte_count
      FROM given AS g WHERE g.known IS NULL GROUP BY g.partition_id) AS n
    WHERE p.partition_id = n.partition_id AND NOT p.is_removed
    RETURNING p.partition_id, p.next_offset - n.record_count AS first_offset, p.last_published_at
  ), written AS (
    INSERT INTO log_records (partition_id, record_offset, published_at, only_group_id, record_key,
      record_id, metadata, failure, payload)
    SELECT g.partition_id, a.first_offset + g.place_in_partition, a.last_published_at,
      g.only_group_id, g.record_key, g.record_id, g.metadata, g.failure, g.payload
    FROM given AS g JOIN advanced AS a ON a.partition_id = g.partition_id
    WHERE g.known IS NULL
    ORDER BY g.partition_id, g.place_in_partition
  )
  SELECT array_agg(coalesce(g.known, a.first_offset + g.place_in_partition) ORDER BY g.place),
    array_agg(g.known IS NOT NULL ORDER BY g.place)
  INTO offsets, duplicates
  FROM given AS g LEFT JOIN advanced AS a ON a.partition_id = g.partition_id;
END $$;

-- Where to begin for a time: the offset of the first record of each partition that was published
-- then or later, and what comes next where there is none. A search by halves along the primary key:
-- times never go back within a partition.
CREATE OR REPLACE FUNCTION log_offsets_at(p_partition_ids bigint[], p_at timestamptz)
RETURNS TABLE (partition_id bigint, record_offset bigint) LANGUAGE plpgsql STABLE AS $$
#variable_conflict use_column
DECLARE
  v_partition record;
  v_found record;
  v_low bigint;
  v_high bigint;
  v_middle bigint;
BEGIN
  FOR v_partition IN
    SELECT p.partition_id, p.start_offset, p.next_offset, p.last_published_at
    FROM log_partitions AS p WHERE p.partition_id = ANY(p_partition_ids)
  LOOP
    v_low := v_partition.start_offset;
    v_high := v_partition.next_offset;
    IF v_partition.last_published_at < p_at THEN
      v_low := v_high;
    END IF;
    v_middle := v_low;
    WHILE v_low < v_high LOOP
      SELECT r.record_offset, r.published_at INTO v_found FROM log_records AS r
      WHERE r.partition_id = v_partition.partition_id AND r.record_offset >= v_middle
        AND r.record_offset < v_high
      ORDER BY r.record_offset LIMIT 1;
      IF NOT FOUND THEN
        v_high := v_middle;
      ELSIF v_found.published_at >= p_at THEN
        v_high := v_middle;
      ELSE
        v_low := v_found.record_offset + 1;
      END IF;
      v_middle := (v_low + v_high) / 2;
    END LOOP;
    partition_id := v_partition.partition_id;
    record_offset := v_low;
    RETURN NEXT;
  END LOOP;
END $$;

-- What partitions need not keep at a moment: what was published until `age_cutoff`; until
-- `consumed_cutoff`, if it lies before `consumed_to`, where the slowest group goes on; and the oldest
-- `excess_bytes`, its share of what its log has too much of. NULL is no reason for anything. A group
-- that never looked at a partition has read nothing of it. Groups can be behind the start.
CREATE OR REPLACE FUNCTION log_cutoffs(p_now timestamptz, p_partition_ids bigint[])
RETURNS TABLE (
  partition_id bigint, start_offset bigint, age_cutoff timestamptz, consumed_cutoff timestamptz,
  consumed_to bigint, excess_bytes bigint
) LANGUAGE sql STABLE AS $$
  WITH clock AS MATERIALIZED (
    SELECT coalesce(p_now, present()) AS now
  ), asked AS MATERIALIZED (
    SELECT p.partition_id, p.log_id, p.start_offset, p.byte_count, l.max_age_seconds,
      l.retain_consumed_seconds, l.max_bytes
    FROM log_partitions AS p JOIN logs AS l ON l.log_id = p.log_id
    WHERE p.partition_id = ANY(p_partition_ids) AND p.next_offset > p.start_offset
      AND NOT p.is_removed
  ), totals AS MATERIALIZED (
    SELECT p.log_id, sum(p.byte_count) AS byte_count
    FROM log_partitions AS p
    WHERE p.log_id IN (SELECT a.log_id FROM asked AS a WHERE a.max_bytes IS NOT NULL)
    GROUP BY p.log_id
  )
  SELECT a.partition_id, a.start_offset, clock.now - a.max_age_seconds * interval '1 second',
    clock.now - a.retain_consumed_seconds * interval '1 second',
    (SELECT min(coalesce(s.watermark + 1, 0))
     FROM log_groups AS g
     LEFT JOIN log_positions AS s
       ON s.group_id = g.group_id AND s.partition_id = a.partition_id
     WHERE g.log_id = a.log_id),
    CASE WHEN t.byte_count > a.max_bytes
      THEN ceil((t.byte_count - a.max_bytes) * a.byte_count / t.byte_count)::bigint END
  FROM clock, asked AS a LEFT JOIN totals AS t ON t.log_id = a.log_id
$$;
