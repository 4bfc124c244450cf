-- revision 8
-- FIFO: what needs more than one snapshot in one round trip, and what several paths share.
--
-- Who locks what, in this order, so that nobody waits in a circle, after queues that hold only so
-- many messages (functions/rooms.sql) and topics (functions/topics.sql):
--   1. rows of fifo_groups, by (queue_id, group_id): delete, change visibility, moves, purge wait for
--      them; receive, retention and move tasks skip what is taken; senders never touch one;
--   2. sender locks, by key: pg_advisory_xact_lock(hashtextextended(group_id, queue_id)), held to the
--      commit. Senders and moves wait for them, whoever drops a group only tries;
--   3. rows of fifo_dedup, by key; delete_in_groups skips what is taken.
-- A group row is inserted and deleted under its sender lock only. That is why a sender may decide
-- with a plain look whether the row is there, provided that it looks after it got the lock: with a
-- new snapshot, hence functions (group_sends.sql, group_deletes.sql). A look that locks (ON CONFLICT) would wait for every receive and
-- delete under way, and would hide the group from receivers.
--
-- Plans are made once for each connection, maybe when the tables are drained, and kept. A planner
-- that believes in one row makes it the outer side of a join and then reads 100,000 of them. So no
-- statement here joins a table: rows are looked up by key in a LATERAL subquery that cannot be
-- flattened (FOR UPDATE, LIMIT, OFFSET 0), deleted by ctid = ANY(ARRAY(...)), and rows of groups are
-- updated by INSERT ... ON CONFLICT: the row is there and locked, and its key is found by the index.
-- Functions that run on lanes rely on the lane's planner settings; the others carry their own.

-- Removes groups that hold no message any more. The caller holds their rows and says for which of
-- them it got the sender lock too. Its statements have snapshots of their own: what a sender
-- committed meanwhile is seen. A group that stays is brought in line with its first message, or is
-- ready at once when a sender is at work in it: the next receive looks again.
CREATE OR REPLACE FUNCTION fifo_drop(p_now timestamptz, p_queue_ids int[], p_group_ids text[], p_locked boolean[])
RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  v_dropped int;
BEGIN
  DELETE FROM fifo_groups AS f WHERE f.ctid = ANY(ARRAY(
    SELECT (SELECT g.ctid FROM fifo_groups AS g
            WHERE g.queue_id = i.queue_id AND g.group_id = i.group_id
              AND NOT EXISTS (
                SELECT 1 FROM fifo_messages AS m WHERE m.queue_id = i.queue_id
                  AND m.group_id = i.group_id AND m.sequence > g.d_last OFFSET 0))
    FROM unnest(p_queue_ids, p_group_ids, p_locked) AS i (queue_id, group_id, locked)
    WHERE i.locked));
  GET DIAGNOSTICS v_dropped = ROW_COUNT;
  IF v_dropped < cardinality(p_queue_ids) THEN
    INSERT INTO fifo_groups (queue_id, group_id, ready_at, head_seq)
    SELECT i.queue_id, i.group_id, coalesce(n.visible_at, p_now), coalesce(n.sequence, g.head_seq)
    FROM unnest(p_queue_ids, p_group_ids) AS i (queue_id, group_id), LATERAL (
      SELECT f.head_seq, f.d_last FROM fifo_groups AS f
      WHERE f.queue_id = i.queue_id AND f.group_id = i.group_id OFFSET 0) AS g
    LEFT JOIN LATERAL (
      SELECT m.sequence, m.visible_at FROM fifo_messages AS m
      WHERE m.queue_id = i.queue_id AND m.group_id = i.group_id AND m.sequence > g.d_last
      ORDER BY m.sequence LIMIT 1) AS n ON true
    ON CONFLICT (queue_id, group_id) DO UPDATE
    SET d_seq = '{}', d_rc = '{}', d_until = '{}', d_first = '{}',
        ready_at = excluded.ready_at, head_seq = excluded.head_seq;
  END IF;
END $$;

-- Brings groups in line with the messages that are there, after some were deleted. The caller holds
-- the rows and has deleted from the front of each group, or what was in flight. Drops empty ones.
CREATE OR REPLACE FUNCTION fifo_settle(p_now timestamptz, p_queue_id int, p_group_ids text[])
RETURNS void LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET enable_bitmapscan = off SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
  v_group_ids text[];
BEGIN
  WITH g AS MATERIALIZED (
    SELECT f.group_id, f.d_last, k.*
    FROM unnest(p_group_ids) AS i (group_id), LATERAL (
      SELECT x.group_id, x.d_last, x.d_seq, x.d_rc, x.d_until, x.d_first
      FROM fifo_groups AS x
      WHERE x.queue_id = p_queue_id AND x.group_id = i.group_id OFFSET 0) AS f,
    LATERAL (
      SELECT array_agg(d.seq ORDER BY d.place) AS ks, array_agg(d.rc ORDER BY d.place) AS kr,
        array_agg(d.until ORDER BY d.place) AS ku, array_agg(d.first ORDER BY d.place) AS kf
      FROM unnest(f.d_seq, f.d_rc, f.d_until, f.d_first)
        WITH ORDINALITY AS d (seq, rc, until, first, place)
      WHERE EXISTS (
        SELECT 1 FROM fifo_messages AS m WHERE m.queue_id = p_queue_id
          AND m.group_id = f.group_id AND m.sequence = d.seq OFFSET 0)) AS k
  ), h AS MATERIALIZED (
    SELECT g.*, f.sequence, f.visible_at
    FROM g LEFT JOIN LATERAL (
      SELECT m.sequence, m.visible_at FROM fifo_messages AS m
      WHERE g.ks IS NULL AND m.queue_id = p_queue_id AND m.group_id = g.group_id
        AND m.sequence > g.d_last
      ORDER BY m.sequence LIMIT 1) AS f ON true
  ), u AS (
    INSERT INTO fifo_groups (queue_id, group_id, ready_at, head_seq, d_seq, d_rc, d_until, d_first)
    SELECT p_queue_id, h.group_id, coalesce(h.ku[1], h.visible_at), coalesce(h.ks[1], h.sequence),
      coalesce(h.ks, '{}'), coalesce(h.kr, '{}'), coalesce(h.ku, '{}'), coalesce(h.kf, '{}')
    FROM h WHERE h.ks IS NOT NULL OR h.sequence IS NOT NULL
    ON CONFLICT (queue_id, group_id) DO UPDATE
    SET ready_at = excluded.ready_at, head_seq = excluded.head_seq, d_seq = excluded.d_seq,
        d_rc = excluded.d_rc, d_until = excluded.d_until, d_first = excluded.d_first
  )
  SELECT array_agg(h.group_id) INTO v_group_ids
  FROM h WHERE h.ks IS NULL AND h.sequence IS NULL;
  IF v_group_ids IS NOT NULL THEN
    PERFORM fifo_drop(p_now, array_fill(p_queue_id, ARRAY[cardinality(v_group_ids)]), v_group_ids,
      ARRAY(SELECT pg_try_advisory_xact_lock(hashtextextended(i.group_id, p_queue_id))
            FROM unnest(v_group_ids) WITH ORDINALITY AS i (group_id, place) ORDER BY i.place));
  END IF;
END $$;

-- Deletes the front of each group: what is past its retention, or its own expiry, and not in flight,
-- up to p_limit in all and 200 of a group. The caller holds the rows. Answers how many messages went.
CREATE OR REPLACE FUNCTION fifo_cut(
  p_now timestamptz, p_queue_id int, p_group_ids text[], p_retention int, p_limit int
) RETURNS int LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET enable_bitmapscan = off SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
  v_cut int;
BEGIN
  DELETE FROM fifo_messages AS m WHERE m.ctid = ANY(ARRAY(
    SELECT w.tid
    FROM unnest(p_group_ids) AS i (group_id), LATERAL (
      SELECT f.head_seq, f.d_seq, f.d_until FROM fifo_groups AS f
      WHERE f.queue_id = p_queue_id AND f.group_id = i.group_id OFFSET 0) AS g, LATERAL (
      SELECT x.tid, bool_and(x.ok) OVER (ORDER BY x.sequence) AS ok
      FROM (
        SELECT m.ctid AS tid, m.sequence, (
            m.sent_at <= p_now - p_retention * interval '1 second'
            OR coalesce(m.expires_at <= p_now, false))
          AND coalesce(g.d_until[array_position(g.d_seq, m.sequence)] <= p_now, true) AS ok
        FROM fifo_messages AS m
        WHERE m.queue_id = p_queue_id AND m.group_id = i.group_id AND m.sequence >= g.head_seq
        ORDER BY m.sequence LIMIT 200) AS x) AS w
    WHERE w.ok LIMIT p_limit));
  GET DIAGNOSTICS v_cut = ROW_COUNT;
  IF v_cut > 0 THEN
    INSERT INTO queue_deltas (queue_id, delta) VALUES (p_queue_id, -v_cut);
  END IF;
  RETURN v_cut;
END $$;

-- A receive found these groups ready but had nothing to hand out: their front has ended, or their row says ready too early. Sees to both; groups that others hold are theirs.
CREATE OR REPLACE FUNCTION fifo_refresh(
  p_now timestamptz, p_queue_id int, p_group_ids text[], p_retention int
) RETURNS int LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET enable_bitmapscan = off SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
  v_now timestamptz := coalesce(p_now, present());
  v_group_ids text[];
  v_cut int;
BEGIN
  v_group_ids := ARRAY(
    SELECT f.group_id
    FROM unnest(p_group_ids) AS i (group_id), LATERAL (
      SELECT g.group_id FROM fifo_groups AS g
      WHERE g.queue_id = p_queue_id AND g.group_id = i.group_id
      FOR NO KEY UPDATE SKIP LOCKED) AS f);
  v_cut := fifo_cut(v_now, p_queue_id, v_group_ids, p_retention, 5000);
  PERFORM fifo_settle(v_now, p_queue_id, v_group_ids);
  RETURN v_cut;
END $$;

-- Retention: a group whose row has been ready for longer than the retention holds an expired head.
-- A head that was received is found at most as long after its end as its last timeout ended after
-- it was sent; no receive hands it out in the meantime. Messages that have an expiry of their own are
-- found by that, wherever they are in their group; what is in flight stays until its timeout ends, for
-- its group waits for it.
CREATE OR REPLACE FUNCTION fifo_expire(p_now timestamptz, p_queue_id int, p_retention int, p_limit int)
RETURNS int LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET enable_bitmapscan = off SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
  v_now timestamptz := coalesce(p_now, present());
  v_group_ids text[];
  v_cut int := 0;
  v_ended int;
BEGIN
  v_group_ids := ARRAY(
    SELECT f.group_id FROM fifo_groups AS f
    WHERE f.queue_id = p_queue_id AND f.ready_at > '-infinity'
      AND f.ready_at <= v_now - p_retention * interval '1 second'
    ORDER BY f.ready_at LIMIT least(p_limit, 1000) FOR NO KEY UPDATE SKIP LOCKED);
  IF cardinality(v_group_ids) > 0 THEN
    v_cut := fifo_cut(v_now, p_queue_id, v_group_ids, p_retention, p_limit);
    PERFORM fifo_settle(v_now, p_queue_id, v_group_ids);
  END IF;
  v_group_ids := ARRAY(
    SELECT l.group_id
    FROM (
      SELECT DISTINCT e.group_id FROM (
        SELECT m.group_id FROM fifo_messages AS m
        WHERE m.queue_id = p_queue_id AND m.expires_at <= v_now
        ORDER BY m.expires_at LIMIT least(p_limit, 1000)) AS e) AS i, LATERAL (
      SELECT f.group_id FROM fifo_groups AS f
      WHERE f.queue_id = p_queue_id AND f.group_id = i.group_id
      FOR NO KEY UPDATE SKIP LOCKED) AS l);
  IF cardinality(v_group_ids) > 0 THEN
    DELETE FROM fifo_messages AS m WHERE m.ctid = ANY(ARRAY(
      SELECT e.tid
      FROM (
        SELECT m.ctid AS tid, m.group_id, m.sequence FROM fifo_messages AS m
        WHERE m.queue_id = p_queue_id AND m.expires_at <= v_now
        ORDER BY m.expires_at LIMIT least(p_limit, 1000)) AS e, LATERAL (
        SELECT f.d_until[array_position(f.d_seq, e.sequence)] AS until FROM fifo_groups AS f
        WHERE f.queue_id = p_queue_id AND f.group_id = e.group_id OFFSET 0) AS g
      WHERE e.group_id = ANY(v_group_ids) AND coalesce(g.until <= v_now, true)));
    GET DIAGNOSTICS v_ended = ROW_COUNT;
    IF v_ended > 0 THEN
      INSERT INTO queue_deltas (queue_id, delta) VALUES (p_queue_id, -v_ended);
    END IF;
    PERFORM fifo_settle(v_now, p_queue_id, v_group_ids);
    v_cut := v_cut + v_ended;
  END IF;
  RETURN v_cut;
END $$;

-- Deletes up to p_limit messages with a number up to p_last, whoever holds them, and the groups
-- that are empty then. Answers how many messages and groups went: 0 when nothing is left to do.
CREATE OR REPLACE FUNCTION fifo_purge(p_now timestamptz, p_queue_id int, p_last bigint, p_limit int)
RETURNS int LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET enable_bitmapscan = off SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
  v_now timestamptz := coalesce(p_now, present());
  v_group_ids text[];
  v_cut int;
  v_left int;
BEGIN
  v_group_ids := ARRAY(
    SELECT f.group_id FROM fifo_groups AS f
    WHERE f.queue_id = p_queue_id AND f.head_seq <= p_last
    ORDER BY f.group_id LIMIT least(p_limit, 1000) FOR NO KEY UPDATE);
  IF cardinality(v_group_ids) = 0 THEN
    RETURN 0;
  END IF;
  DELETE FROM fifo_messages AS m WHERE m.ctid = ANY(ARRAY(
    SELECT x.tid
    FROM unnest(v_group_ids) AS i (group_id), LATERAL (
      SELECT m.ctid AS tid FROM fifo_messages AS m
      WHERE m.queue_id = p_queue_id AND m.group_id = i.group_id AND m.sequence <= p_last
      ORDER BY m.sequence LIMIT p_limit) AS x
    LIMIT p_limit));
  GET DIAGNOSTICS v_cut = ROW_COUNT;
  IF v_cut > 0 THEN
    INSERT INTO queue_deltas (queue_id, delta) VALUES (p_queue_id, -v_cut);
  END IF;
  PERFORM fifo_settle(v_now, p_queue_id, v_group_ids);
  SELECT count(*) INTO v_left
  FROM unnest(v_group_ids) AS i (group_id)
  WHERE EXISTS (
    SELECT 1 FROM fifo_groups AS f
    WHERE f.queue_id = p_queue_id AND f.group_id = i.group_id OFFSET 0);
  RETURN v_cut + cardinality(v_group_ids) - v_left;
END $$;

-- Moves messages to the same group of other queues, as a sender there: new numbers, sent now.
-- With counts (a dead-letter move): only messages whose last receive has that count; the count goes
-- on where it was, less the receive that nobody saw; id kept; p_source_arn is noted.
-- Without (a move task): only messages that are not in flight; a new life under p_message_ids.
-- Deduplication ids become the message ids. A dead letter loses its expiry, or it would go unseen.
-- Answers how many moved: none to a deleted queue.
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
  v_now := coalesce(p_now, present());
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
      m.attributes, m.system, m.expires_at
  ), moved AS (
    INSERT INTO fifo_messages (queue_id, group_id, sequence, visible_at, sent_at, prior_count,
      message_id, sender_id, body, attributes, system, deduplication_id, expires_at)
    SELECT o.target_id, o.group_id, nextval('fifo_sequence'), v_now, v_now,
      coalesce(o.receive_count - 1, 0), o.message_id, o.sender_id, o.body, o.attributes,
      o.system, o.message_id::text, o.expires_at
    FROM (
      SELECT p.target_id, t.group_id, p.receive_count, t.sender_id, t.body, t.attributes,
        CASE WHEN p_source_arn IS NULL THEN t.expires_at END AS expires_at,
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

-- A new DelaySeconds holds for what was sent before and never received, too. Whole queue, one
-- transaction: groups are locked, only messages change for which it makes a difference now.
CREATE OR REPLACE FUNCTION fifo_set_delay(p_now timestamptz, p_queue_id int, p_delay int)
RETURNS int LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET enable_bitmapscan = off SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
  v_now timestamptz;
  v_group_ids text[];
  v_changed int;
BEGIN
  v_group_ids := ARRAY(
    SELECT f.group_id FROM fifo_groups AS f WHERE f.queue_id = p_queue_id
    ORDER BY f.group_id FOR NO KEY UPDATE);
  v_now := coalesce(p_now, present());
  UPDATE fifo_messages AS m
  SET visible_at = m.sent_at + p_delay * interval '1 second'
  WHERE m.ctid = ANY(ARRAY(
    SELECT x.tid
    FROM unnest(v_group_ids) AS i (group_id), LATERAL (
      SELECT f.d_last FROM fifo_groups AS f
      WHERE f.queue_id = p_queue_id AND f.group_id = i.group_id OFFSET 0) AS g, LATERAL (
      SELECT n.ctid AS tid FROM fifo_messages AS n
      WHERE n.queue_id = p_queue_id AND n.group_id = i.group_id AND n.sequence > g.d_last
        AND n.visible_at <> n.sent_at + p_delay * interval '1 second'
        AND greatest(n.visible_at, n.sent_at + p_delay * interval '1 second') > v_now
      OFFSET 0) AS x));
  GET DIAGNOSTICS v_changed = ROW_COUNT;
  INSERT INTO fifo_groups (queue_id, group_id, ready_at, head_seq)
  SELECT p_queue_id, i.group_id, h.visible_at, h.sequence
  FROM unnest(v_group_ids) AS i (group_id), LATERAL (
    SELECT f.ready_at, f.head_seq FROM fifo_groups AS f
    WHERE f.queue_id = p_queue_id AND f.group_id = i.group_id AND f.d_seq = '{}' OFFSET 0) AS g,
  LATERAL (
    SELECT m.sequence, m.visible_at FROM fifo_messages AS m
    WHERE m.queue_id = p_queue_id AND m.group_id = i.group_id AND m.sequence >= g.head_seq
    ORDER BY m.sequence LIMIT 1) AS h
  WHERE g.ready_at <> h.visible_at
  ON CONFLICT (queue_id, group_id) DO UPDATE
  SET ready_at = excluded.ready_at, head_seq = excluded.head_seq;
  RETURN v_changed;
END $$;
