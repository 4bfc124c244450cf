-- A move only settles groups whose rows it holds. A group that was gone when the rows were locked may
-- be back a moment later: to settle it then, from an older snapshot, undid a receive that committed in
-- between, and what that receive had handed out was never seen again.

-- Moves messages to the same group of other queues, as a sender there: new numbers, sent now.
-- With counts (a dead-letter move): only messages whose last receive has that count; the count goes
-- on where it was, less the receive that nobody saw; id kept; p_source_arn is noted.
-- Without (a move task): only messages that are not in flight; a new life under p_message_ids.
-- Deduplication ids become the message ids. Answers how many moved: none to a deleted queue.
CREATE OR REPLACE FUNCTION fifo_move(
  p_now timestamptz, p_source_id int, p_group_ids text[], p_sequences bigint[], p_counts int[],
  p_target_ids int[], p_message_ids uuid[], p_source_arn text
) RETURNS int LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET enable_bitmapscan = off SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
  v_now timestamptz;
  v_group_ids text[];
  v_live int[];
  v_moved int;
BEGIN
  -- All locks before the first change: rows of the source, then sender locks of the targets.
  v_group_ids := ARRAY(
    SELECT l.group_id FROM (
      SELECT DISTINCT e.group_id COLLATE "C" AS group_id
      FROM unnest(p_group_ids) AS e (group_id) ORDER BY 1) AS i, LATERAL (
      SELECT f.group_id FROM fifo_groups AS f
      WHERE f.queue_id = p_source_id AND f.group_id = i.group_id FOR NO KEY UPDATE) AS l);
  PERFORM pg_advisory_xact_lock(k.key) FROM (
    SELECT DISTINCT hashtextextended(i.group_id, i.target_id) AS key
    FROM unnest(p_group_ids, p_target_ids) AS i (group_id, target_id) ORDER BY 1) AS k;
  v_now := coalesce(p_now, clock_timestamp());
  -- OFFSET keeps the partial index of live names out: it would be read from end to end.
  v_live := ARRAY(SELECT q.queue_id
    FROM (SELECT i.queue_id, i.deleted_at FROM queues AS i
          WHERE i.queue_id = ANY(p_target_ids) OFFSET 0) AS q
    WHERE q.deleted_at IS NULL);
  WITH picked AS MATERIALIZED (
    SELECT m.ctid AS tid, i.target_id, i.message_id, i.receive_count
    FROM unnest(p_group_ids, p_sequences, p_counts, p_target_ids, p_message_ids)
      AS i (group_id, sequence, receive_count, target_id, message_id), LATERAL (
      SELECT g.d_seq, g.d_rc, g.d_until FROM fifo_groups AS g
      WHERE g.queue_id = p_source_id AND g.group_id = i.group_id OFFSET 0) AS f, LATERAL (
      SELECT x.ctid FROM fifo_messages AS x
      WHERE x.queue_id = p_source_id AND x.group_id = i.group_id AND x.sequence = i.sequence
      OFFSET 0) AS m
    WHERE i.target_id = ANY(v_live) AND i.group_id = ANY(v_group_ids) AND CASE
      WHEN p_counts IS NULL
        THEN coalesce(f.d_until[array_position(f.d_seq, i.sequence)] <= v_now, true)
      ELSE coalesce(f.d_rc[array_position(f.d_seq, i.sequence)] = i.receive_count, false) END
  ), taken AS (
    DELETE FROM fifo_messages AS m WHERE m.ctid = ANY(ARRAY(SELECT picked.tid FROM picked))
    RETURNING m.ctid AS tid, m.group_id, m.sequence, m.message_id, m.sender_id, m.body,
      m.attributes, m.system
  ), moved AS (
    INSERT INTO fifo_messages (queue_id, group_id, sequence, visible_at, sent_at, prior_count,
      message_id, sender_id, body, attributes, system, deduplication_id)
    SELECT o.target_id, o.group_id, nextval('fifo_sequence'), v_now, v_now,
      coalesce(o.receive_count - 1, 0), o.message_id, o.sender_id, o.body, o.attributes,
      o.system, o.message_id::text
    FROM (
      SELECT p.target_id, t.group_id, p.receive_count, t.sender_id, t.body, t.attributes,
        coalesce(p.message_id, t.message_id) AS message_id,
        CASE WHEN p_source_arn IS NOT NULL THEN (coalesce(t.system, '{}')::jsonb
            || jsonb_build_object('DeadLetterQueueSourceArn', p_source_arn))::text
          ELSE nullif((t.system::jsonb - 'DeadLetterQueueSourceArn')::text, '{}') END AS system
      FROM taken AS t JOIN picked AS p ON p.tid = t.tid
      ORDER BY t.sequence) AS o
    RETURNING queue_id
  ), counted AS (
    INSERT INTO queue_deltas (queue_id, delta)
    SELECT s.queue_id, sum(s.delta) FROM (
      SELECT moved.queue_id, 1 AS delta FROM moved
      UNION ALL SELECT p_source_id, -1 FROM moved) AS s
    GROUP BY s.queue_id
  )
  SELECT count(*) INTO v_moved FROM moved;
  INSERT INTO fifo_groups (queue_id, group_id, ready_at, head_seq)
  SELECT i.target_id, i.group_id, m.visible_at, m.sequence
  FROM (SELECT DISTINCT e.target_id, e.group_id
        FROM unnest(p_target_ids, p_group_ids) AS e (target_id, group_id)) AS i,
    LATERAL (
      SELECT x.visible_at, x.sequence FROM fifo_messages AS x
      WHERE x.queue_id = i.target_id AND x.group_id = i.group_id
      ORDER BY x.sequence LIMIT 1) AS m
  WHERE NOT EXISTS (
    SELECT 1 FROM fifo_groups AS f
    WHERE f.queue_id = i.target_id AND f.group_id = i.group_id OFFSET 0);
  PERFORM fifo_settle(v_now, p_source_id, v_group_ids);
  RETURN v_moved;
END $$;
