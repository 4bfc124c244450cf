-- revision 4
-- Deletes by receipt in queues with groups. Who locks what, and why no statement joins a table, is said
-- in fifo.sql.

-- Deletes messages whose handle is that of their last receive and whose visibility timeout still
-- runs. Answers by position (from 1): done; expired: the message stays; in neither: gone already.
-- No two rows of one call may name the same message.
-- Nearly always a call deletes all that is delivered of a group; then whole arrays are compared.
-- Taking one apart (unnest in FROM, five aggregates) costs as much as all the rest.
-- On serial queues the timeout may be over, and deduplication ids are forgotten. Rows of fifo_dedup
-- that others hold are left: they count no more.
CREATE OR REPLACE FUNCTION delete_in_groups(
  p_now timestamptz, p_queue_ids int[], p_group_ids text[], p_sequences bigint[], p_counts int[],
  p_is_serial boolean, OUT done bigint[], OUT expired bigint[]
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  v_keys uuid[];
  v_queue_ids int[];
  v_group_ids text[];
  v_locked boolean[];
  v_now timestamptz;
BEGIN
  IF p_is_serial THEN
    v_keys := ARRAY(
      SELECT (SELECT serial_key(x.queue_id, x.group_id, x.deduplication_id) FROM fifo_messages AS x
              WHERE x.queue_id = e.queue_id AND x.group_id = e.group_id AND x.sequence = e.sequence)
      FROM unnest(p_queue_ids, p_group_ids, p_sequences)
        WITH ORDINALITY AS e (queue_id, group_id, sequence, position)
      ORDER BY e.position);
  END IF;
  WITH l AS MATERIALIZED (
    SELECT f.queue_id, f.group_id, f.d_last, f.d_seq, f.d_rc, f.d_until, f.d_first,
      i.sequences AS ss, i.counts AS cs, i.positions AS ps
    FROM (
      SELECT e.queue_id, e.group_id COLLATE "C" AS group_id,
        array_agg(e.sequence ORDER BY e.sequence) AS sequences,
        array_agg(e.receive_count ORDER BY e.sequence) AS counts,
        array_agg(e.position ORDER BY e.sequence) AS positions
      FROM unnest(p_queue_ids, p_group_ids, p_sequences, p_counts)
        WITH ORDINALITY AS e (queue_id, group_id, sequence, receive_count, position)
      GROUP BY 1, 2 ORDER BY 1, 2) AS i, LATERAL (
      SELECT g.queue_id, g.group_id, g.d_last, g.d_seq, g.d_rc, g.d_until, g.d_first
      FROM fifo_groups AS g
      WHERE g.queue_id = i.queue_id AND g.group_id = i.group_id FOR NO KEY UPDATE) AS f
  ), t AS MATERIALIZED (
    -- The time after the locks: a handle must not outlive its timeout by waiting.
    SELECT coalesce(p_now, present()) AS now FROM (SELECT count(*) FROM l) AS c
  ), w AS MATERIALIZED (
    SELECT l.*, t.now, l.ss = l.d_seq AND l.cs = l.d_rc
      AND (p_is_serial OR t.now < ALL (l.d_until)) AS whole
    FROM t, l
  ), n AS MATERIALIZED (
    SELECT w.queue_id, w.group_id, w.d_last, k.*
    FROM w, LATERAL (
      SELECT
        array_agg(d.seq) FILTER (WHERE NOT d.ok) AS ks, array_agg(d.rc) FILTER (WHERE NOT d.ok) AS kr,
        array_agg(d.until) FILTER (WHERE NOT d.ok) AS ku,
        array_agg(d.first) FILTER (WHERE NOT d.ok) AS kf,
        array_agg(d.seq) FILTER (WHERE d.ok) AS ds
      FROM (
        SELECT e.*, coalesce(
          (p_is_serial OR e.until > w.now) AND w.cs[array_position(w.ss, e.seq)] = e.rc, false) AS ok
        FROM unnest(w.d_seq, w.d_rc, w.d_until, w.d_first) AS e (seq, rc, until, first)) AS d) AS k
    WHERE NOT w.whole
  ), gone AS (
    -- By key in a scalar subquery: as a join it was planned to read whole groups.
    DELETE FROM fifo_messages AS m WHERE m.ctid = ANY(ARRAY(
      SELECT (SELECT x.ctid FROM fifo_messages AS x
              WHERE x.queue_id = s.queue_id AND x.group_id = s.group_id AND x.sequence = s.sequence)
      FROM (
        SELECT w.queue_id, w.group_id, unnest(w.ss) AS sequence FROM w WHERE w.whole
        UNION ALL SELECT n.queue_id, n.group_id, unnest(n.ds) FROM n) AS s))
    RETURNING m.queue_id
  ), counted AS (
    INSERT INTO queue_deltas (queue_id, delta)
    SELECT gone.queue_id, -count(*) FROM gone GROUP BY gone.queue_id
  ), h AS MATERIALIZED (
    SELECT o.queue_id, o.group_id, f.sequence, f.visible_at
    FROM (
      SELECT w.queue_id, w.group_id, w.d_last FROM w WHERE w.whole
      UNION ALL
      SELECT n.queue_id, n.group_id, n.d_last FROM n
      WHERE n.ks IS NULL AND n.ds IS NOT NULL) AS o
    LEFT JOIN LATERAL (
      SELECT m.sequence, m.visible_at FROM fifo_messages AS m
      WHERE m.queue_id = o.queue_id AND m.group_id = o.group_id AND m.sequence > o.d_last
      ORDER BY m.sequence LIMIT 1) AS f ON true
  ), changed AS (
    INSERT INTO fifo_groups (queue_id, group_id, ready_at, head_seq, d_seq, d_rc, d_until, d_first)
    SELECT n.queue_id, n.group_id, n.ku[1], n.ks[1], n.ks, n.kr, n.ku, n.kf
    FROM n WHERE n.ds IS NOT NULL AND n.ks IS NOT NULL
    UNION ALL
    SELECT h.queue_id, h.group_id, h.visible_at, h.sequence, '{}', '{}', '{}', '{}'
    FROM h WHERE h.sequence IS NOT NULL
    ON CONFLICT (queue_id, group_id) DO UPDATE
    SET ready_at = excluded.ready_at, head_seq = excluded.head_seq, d_seq = excluded.d_seq,
        d_rc = excluded.d_rc, d_until = excluded.d_until, d_first = excluded.d_first,
        comes_back = false
  ), z AS MATERIALIZED (
    SELECT e.position, w.d_rc[e.place] = e.receive_count
      AND (p_is_serial OR w.d_until[e.place] > w.now) AS ok
    FROM w, LATERAL (
      SELECT i.position, i.receive_count, array_position(w.d_seq, i.sequence) AS place
      FROM unnest(w.ps, w.ss, w.cs) AS i (position, sequence, receive_count)) AS e
    WHERE NOT w.whole AND e.place IS NOT NULL
  )
  SELECT
    ARRAY(SELECT unnest(w.ps) FROM w WHERE w.whole
          UNION ALL SELECT z.position FROM z WHERE z.ok),
    ARRAY(SELECT z.position FROM z WHERE NOT z.ok),
    b.*, (SELECT t.now FROM t)
  INTO done, expired, v_queue_ids, v_group_ids, v_locked, v_now
  FROM (
    SELECT array_agg(h.queue_id), array_agg(h.group_id),
      array_agg(pg_try_advisory_xact_lock(hashtextextended(h.group_id, h.queue_id)))
    FROM h WHERE h.sequence IS NULL) AS b;
  IF v_queue_ids IS NOT NULL THEN
    PERFORM fifo_drop(v_now, v_queue_ids, v_group_ids, v_locked);
  END IF;
  IF p_is_serial THEN
    DELETE FROM fifo_dedup AS d WHERE d.ctid = ANY(ARRAY(
      SELECT k.tid FROM unnest(done) AS i (position), LATERAL (
        SELECT x.ctid AS tid FROM fifo_dedup AS x
        WHERE x.queue_id = p_queue_ids[i.position] AND x.dedup_key = v_keys[i.position]
          AND x.sequence = p_sequences[i.position]
        FOR UPDATE SKIP LOCKED) AS k));
  END IF;
END $$;

-- As `delete_in_groups`, for gateways that know no serial queues.
CREATE OR REPLACE FUNCTION fifo_delete(
  p_now timestamptz, p_queue_ids int[], p_group_ids text[], p_sequences bigint[], p_counts int[],
  OUT done bigint[], OUT expired bigint[]
) LANGUAGE sql AS $$
  SELECT w.done, w.expired
  FROM delete_in_groups(p_now, p_queue_ids, p_group_ids, p_sequences, p_counts, false) AS w
$$;

-- As `delete_in_groups` where each handle has a group of its own, in this order of groups, all of
-- one FIFO queue. Nearly always each is all that is delivered of its group: then no array has to be
-- made or taken apart, and `done` is NULL, which means all. If it is not so of one of them, nothing
-- but locks has happened yet, and the other function does it.
CREATE OR REPLACE FUNCTION delete_one_of_each_group(
  p_now timestamptz, p_queue_id int, p_group_ids text[], p_sequences bigint[], p_counts int[],
  OUT done bigint[], OUT expired bigint[]
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  v_count int := cardinality(p_group_ids);
  v_found int;
  v_until timestamptz;
  v_lasts bigint[];
  v_now timestamptz;
  v_group_ids text[];
  v_locked boolean[];
BEGIN
  SELECT count(*), min(f.d_until[1]), array_agg(f.d_last) INTO v_found, v_until, v_lasts
  FROM unnest(p_group_ids, p_sequences, p_counts) AS i (group_id, sequence, receive_count),
  LATERAL (
    SELECT g.d_last, g.d_seq, g.d_rc, g.d_until FROM fifo_groups AS g
    WHERE g.queue_id = p_queue_id AND g.group_id = i.group_id FOR NO KEY UPDATE) AS f
  WHERE f.d_seq[1] = i.sequence AND f.d_rc[1] = i.receive_count AND f.d_seq[2] IS NULL;
  -- The time after the locks: a handle must not outlive its timeout by waiting.
  v_now := coalesce(p_now, present());
  IF v_found < v_count OR v_until <= v_now THEN
    -- A group created since the snapshot of the locks holds no message of these handles. Waiting for
    -- it behind later groups would be a deadlock, so the empty name stands for it.
    v_group_ids := ARRAY(
      SELECT coalesce((
        SELECT g.group_id FROM fifo_groups AS g
        WHERE g.queue_id = p_queue_id AND g.group_id = i.group_id
        FOR NO KEY UPDATE SKIP LOCKED), '')
      FROM unnest(p_group_ids) WITH ORDINALITY AS i (group_id, position) ORDER BY i.position);
    SELECT w.done, w.expired INTO done, expired
    FROM delete_in_groups(p_now, array_fill(p_queue_id, ARRAY[v_count]), v_group_ids, p_sequences,
      p_counts, false) AS w;
    RETURN;
  END IF;
  DELETE FROM fifo_messages AS m WHERE m.ctid = ANY(ARRAY(
    SELECT (SELECT x.ctid FROM fifo_messages AS x
            WHERE x.queue_id = p_queue_id AND x.group_id = i.group_id AND x.sequence = i.sequence)
    FROM unnest(p_group_ids, p_sequences) AS i (group_id, sequence)));
  GET DIAGNOSTICS v_found = ROW_COUNT;
  INSERT INTO queue_deltas (queue_id, delta) VALUES (p_queue_id, -v_found);
  WITH h AS MATERIALIZED (
    SELECT i.group_id, f.sequence, f.visible_at
    FROM unnest(p_group_ids, v_lasts) AS i (group_id, d_last)
    LEFT JOIN LATERAL (
      SELECT m.sequence, m.visible_at FROM fifo_messages AS m
      WHERE m.queue_id = p_queue_id AND m.group_id = i.group_id AND m.sequence > i.d_last
      ORDER BY m.sequence LIMIT 1) AS f ON true
  ), changed AS (
    INSERT INTO fifo_groups (queue_id, group_id, ready_at, head_seq)
    SELECT p_queue_id, h.group_id, h.visible_at, h.sequence FROM h WHERE h.sequence IS NOT NULL
    ON CONFLICT (queue_id, group_id) DO UPDATE
    SET ready_at = excluded.ready_at, head_seq = excluded.head_seq, d_seq = excluded.d_seq,
        d_rc = excluded.d_rc, d_until = excluded.d_until, d_first = excluded.d_first
  )
  SELECT array_agg(h.group_id),
    array_agg(pg_try_advisory_xact_lock(hashtextextended(h.group_id, p_queue_id)))
  INTO v_group_ids, v_locked
  FROM h WHERE h.sequence IS NULL;
  IF v_group_ids IS NOT NULL THEN
    PERFORM fifo_drop(v_now, array_fill(p_queue_id, ARRAY[cardinality(v_group_ids)]), v_group_ids,
      v_locked);
  END IF;
END $$;

-- As `delete_one_of_each_group` of one handle: keys are plain values, and so are plans plain look-ups.
CREATE OR REPLACE FUNCTION delete_one_in_group(
  p_now timestamptz, p_queue_id int, p_group_id text, p_sequence bigint, p_count int,
  OUT done bigint[], OUT expired bigint[]
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  v_last bigint;
  v_until timestamptz;
  v_deleted int;
  v_now timestamptz;
  v_head bigint;
  v_visible_at timestamptz;
BEGIN
  SELECT f.d_last, f.d_until[1] INTO v_last, v_until
  FROM (
    SELECT g.d_last, g.d_seq, g.d_rc, g.d_until FROM fifo_groups AS g
    WHERE g.queue_id = p_queue_id AND g.group_id = p_group_id FOR NO KEY UPDATE) AS f
  WHERE f.d_seq[1] = p_sequence AND f.d_rc[1] = p_count AND f.d_seq[2] IS NULL;
  v_now := coalesce(p_now, present());
  IF v_until IS NULL OR v_until <= v_now THEN
    SELECT w.done, w.expired INTO done, expired
    FROM delete_in_groups(p_now, ARRAY[p_queue_id], ARRAY[p_group_id], ARRAY[p_sequence],
      ARRAY[p_count], false) AS w;
    RETURN;
  END IF;
  DELETE FROM fifo_messages AS m
  WHERE m.queue_id = p_queue_id AND m.group_id = p_group_id AND m.sequence = p_sequence;
  GET DIAGNOSTICS v_deleted = ROW_COUNT;
  INSERT INTO queue_deltas (queue_id, delta) VALUES (p_queue_id, -v_deleted);
  SELECT m.sequence, m.visible_at INTO v_head, v_visible_at FROM fifo_messages AS m
  WHERE m.queue_id = p_queue_id AND m.group_id = p_group_id AND m.sequence > v_last
  ORDER BY m.sequence LIMIT 1;
  IF v_head IS NULL THEN
    PERFORM fifo_drop(v_now, ARRAY[p_queue_id], ARRAY[p_group_id],
      ARRAY[pg_try_advisory_xact_lock(hashtextextended(p_group_id, p_queue_id))]);
  ELSE
    UPDATE fifo_groups AS f
    SET ready_at = v_visible_at, head_seq = v_head,
        d_seq = '{}', d_rc = '{}', d_until = '{}', d_first = '{}'
    WHERE f.queue_id = p_queue_id AND f.group_id = p_group_id;
  END IF;
END $$;
