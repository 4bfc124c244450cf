-- revision 1
-- Serial queues: what differs from FIFO queues, whose tables and locks they have (fifo.sql says who
-- locks what, and why no statement joins a table). Of a group one message is delivered at a time.

-- Of these deduplication keys, whose groups the caller has locked as a sender, those of serial queues
-- whose message is gone, or ended by its own expiry or its queue's retention. Queues have keys of
-- their own there (`serial_key` in storage/queues/rows.py).
CREATE OR REPLACE FUNCTION serial_free(
  p_now timestamptz, p_serial int[], p_queue_ids int[], p_group_ids text[], p_dedup_keys uuid[]
) RETURNS uuid[] LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET enable_bitmapscan = off SET plan_cache_mode = force_generic_plan
AS $$
BEGIN
  RETURN ARRAY(
    SELECT i.dedup_key
    FROM unnest(p_queue_ids, p_group_ids, p_dedup_keys) AS i (queue_id, group_id, dedup_key),
    LATERAL (
      SELECT d.sequence FROM fifo_dedup AS d
      WHERE d.queue_id = i.queue_id AND d.dedup_key = i.dedup_key OFFSET 0) AS d,
    LATERAL (
      SELECT coalesce((x.attributes ->> 'MessageRetentionPeriod')::int, 345600) AS retention
      FROM queues AS x WHERE x.queue_id = i.queue_id OFFSET 0) AS q
    LEFT JOIN LATERAL (
      SELECT m.sent_at, m.expires_at FROM fifo_messages AS m
      WHERE m.queue_id = i.queue_id AND m.group_id = i.group_id AND m.sequence = d.sequence
      OFFSET 0) AS m ON true
    WHERE i.queue_id = ANY(p_serial) AND (
      m.sent_at IS NULL OR m.expires_at <= p_now
      OR m.sent_at <= p_now - q.retention * interval '1 second'));
END $$;

-- As fifo_delete: deletes messages whose handle is that of their last receive, whether or
-- not its timeout still runs, and forgets their deduplication ids. Of a group, one message is
-- delivered: the first of d_seq. Rows of fifo_dedup that others hold are left: they count no more.
CREATE OR REPLACE FUNCTION serial_delete(
  p_now timestamptz, p_queue_ids int[], p_group_ids text[], p_sequences bigint[], p_counts int[],
  OUT done bigint[], OUT expired bigint[]
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  v_queue_ids int[];
  v_group_ids text[];
  v_locked boolean[];
BEGIN
  WITH l AS MATERIALIZED (
    SELECT f.*, i.ss, i.cs, i.ps
    FROM (
      SELECT e.queue_id, e.group_id COLLATE "C" AS group_id, array_agg(e.sequence) AS ss,
        array_agg(e.receive_count) AS cs, array_agg(e.position) AS ps
      FROM unnest(p_queue_ids, p_group_ids, p_sequences, p_counts)
        WITH ORDINALITY AS e (queue_id, group_id, sequence, receive_count, position)
      GROUP BY 1, 2 ORDER BY 1, 2) AS i, LATERAL (
      SELECT g.queue_id, g.group_id, g.d_last, g.d_seq, g.d_rc, g.d_until, g.d_first
      FROM fifo_groups AS g
      WHERE g.queue_id = i.queue_id AND g.group_id = i.group_id FOR NO KEY UPDATE) AS f
  ), w AS MATERIALIZED (
    SELECT l.queue_id, l.group_id, l.d_last, l.d_seq[2:] AS ks, l.d_rc[2:] AS kr,
      l.d_until[2:] AS ku, l.d_first[2:] AS kf, e.position, e.sequence,
      e.sequence = l.d_seq[1] AND e.receive_count = l.d_rc[1] AS ok
    FROM l, LATERAL unnest(l.ps, l.ss, l.cs) AS e (position, sequence, receive_count)
    WHERE e.sequence = ANY(l.d_seq)
  ), gone AS (
    DELETE FROM fifo_messages AS m WHERE m.ctid = ANY(ARRAY(
      SELECT (SELECT x.ctid FROM fifo_messages AS x
              WHERE x.queue_id = w.queue_id AND x.group_id = w.group_id AND x.sequence = w.sequence)
      FROM w WHERE w.ok))
    RETURNING m.queue_id, m.group_id, m.sequence, m.deduplication_id
  ), counted AS (
    INSERT INTO queue_deltas (queue_id, delta)
    SELECT gone.queue_id, -count(*) FROM gone GROUP BY gone.queue_id
  ), forgotten AS (
    DELETE FROM fifo_dedup AS d WHERE d.ctid = ANY(ARRAY(
      SELECT k.tid FROM gone, LATERAL (
        SELECT x.ctid AS tid FROM fifo_dedup AS x
        WHERE x.queue_id = gone.queue_id AND x.sequence = gone.sequence
          AND x.dedup_key = serial_key(gone.queue_id, gone.group_id, gone.deduplication_id)
        FOR UPDATE SKIP LOCKED) AS k))
  ), h AS MATERIALIZED (
    SELECT w.*, f.sequence AS next_sequence, f.visible_at
    FROM w LEFT JOIN LATERAL (
      SELECT m.sequence, m.visible_at FROM fifo_messages AS m
      WHERE m.queue_id = w.queue_id AND m.group_id = w.group_id AND m.sequence > w.d_last
        AND w.ks = '{}'
      ORDER BY m.sequence LIMIT 1) AS f ON true
    WHERE w.ok
  ), changed AS (
    INSERT INTO fifo_groups (queue_id, group_id, ready_at, head_seq, d_seq, d_rc, d_until, d_first)
    SELECT h.queue_id, h.group_id, coalesce(h.ku[1], h.visible_at),
      coalesce(h.ks[1], h.next_sequence), h.ks, h.kr, h.ku, h.kf
    FROM h WHERE h.ks <> '{}' OR h.next_sequence IS NOT NULL
    ON CONFLICT (queue_id, group_id) DO UPDATE
    SET ready_at = excluded.ready_at, head_seq = excluded.head_seq, d_seq = excluded.d_seq,
        d_rc = excluded.d_rc, d_until = excluded.d_until, d_first = excluded.d_first
  )
  SELECT ARRAY(SELECT w.position FROM w WHERE w.ok), ARRAY(SELECT w.position FROM w WHERE NOT w.ok),
    b.*
  INTO done, expired, v_queue_ids, v_group_ids, v_locked
  FROM (
    SELECT array_agg(h.queue_id), array_agg(h.group_id),
      array_agg(pg_try_advisory_xact_lock(hashtextextended(h.group_id, h.queue_id)))
    FROM h WHERE h.ks = '{}' AND h.next_sequence IS NULL) AS b;
  IF v_queue_ids IS NOT NULL THEN
    PERFORM fifo_drop(coalesce(p_now, present()), v_queue_ids, v_group_ids, v_locked);
  END IF;
END $$;

-- The row of fifo_dedup that a message of a serial queue has: as `serial_key` in
-- storage/queues/rows.py makes it. No two pairs of ids make the same text.
CREATE OR REPLACE FUNCTION serial_key(p_queue_id int, p_group_id text, p_deduplication_id text)
RETURNS uuid LANGUAGE sql STABLE AS $$
  SELECT encode(substr(sha256(convert_to(
    p_queue_id || ':' || octet_length(p_group_id) || ':' || p_group_id || p_deduplication_id,
    'UTF8')), 1, 16), 'hex')::uuid
$$;
