-- revision 2

-- Who of a group holds which partitions. Whoever changes that has the row of the group first, so one
-- at a time does; then the rows of positions in the order of their partitions, as whoever stores
-- them. A heartbeat that only renews locks the row of its subscriber and nothing else.
-- Whatever is called from outside has the planner's settings of a lane: a plan that was made while
-- the tables were empty is kept.

-- Gives partitions to a subscriber, or to nobody. The group is locked.
CREATE OR REPLACE FUNCTION hand_over_partitions(
  p_group_id int, p_partition_ids bigint[], p_subscriber text
) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  PERFORM 1 FROM log_positions AS p
  WHERE p.group_id = p_group_id AND p.partition_id = ANY(p_partition_ids)
  ORDER BY p.partition_id FOR NO KEY UPDATE;
  UPDATE log_positions AS p SET held_by = p_subscriber, held_since = p.deliveries
  WHERE p.group_id = p_group_id AND p.partition_id = ANY(p_partition_ids);
END $$;

-- Lets a group have a position in every partition of its log, where its start says. The group is
-- locked. How many partitions there are.
CREATE OR REPLACE FUNCTION make_positions(p_group_id int) RETURNS int LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET enable_bitmapscan = off SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
  v_group log_groups;
  v_count int;
BEGIN
  SELECT g.* INTO v_group FROM log_groups AS g WHERE g.group_id = p_group_id;
  SELECT l.next_partition INTO v_count FROM logs AS l WHERE l.log_id = v_group.log_id;
  IF v_count = v_group.position_count THEN
    RETURN v_count;
  END IF;
  INSERT INTO log_positions (group_id, partition_id, number, watermark, head)
  SELECT p_group_id, p.partition_id, p.number, s.begin_offset - 1, s.begin_offset - 1
  FROM log_partitions AS p
  CROSS JOIN LATERAL (
    SELECT CASE WHEN v_group.start_at = '-infinity' THEN p.start_offset ELSE (
      SELECT a.record_offset FROM log_offsets_at(ARRAY[p.partition_id], v_group.start_at) AS a
    ) END AS begin_offset) AS s
  WHERE p.log_id = v_group.log_id AND p.number >= v_group.position_count AND p.number < v_count
    AND NOT p.is_removed
  ON CONFLICT (group_id, partition_id) DO NOTHING;
  UPDATE log_groups AS g SET position_count = v_count WHERE g.group_id = p_group_id;
  RETURN v_count;
END $$;

-- Removes the subscribers of a group that are dead, and frees what they held. The group is locked.
-- How many there were.
CREATE OR REPLACE FUNCTION remove_dead_subscribers(p_now timestamptz, p_group_id int) RETURNS int
LANGUAGE plpgsql AS $$
DECLARE
  v_dead text[];
BEGIN
  WITH dead AS (
    DELETE FROM log_subscribers AS s
    WHERE s.group_id = p_group_id AND s.live_until <= p_now
    RETURNING s.subscriber_name
  )
  SELECT array_agg(d.subscriber_name) INTO v_dead FROM dead AS d;
  IF v_dead IS NULL THEN
    RETURN 0;
  END IF;
  PERFORM hand_over_partitions(p_group_id, ARRAY(
    SELECT p.partition_id FROM log_positions AS p
    WHERE p.group_id = p_group_id AND p.held_by = ANY(v_dead)), NULL);
  UPDATE log_groups AS g
  SET generation = g.generation + 1, live_subscribers = g.live_subscribers - cardinality(v_dead)
  WHERE g.group_id = p_group_id;
  RETURN cardinality(v_dead);
END $$;

-- Joins a group: a new session, which ends any that this subscriber has had. What it held it keeps,
-- as if it had just got it. 0: there is no such group. NULL: the subscriber is live in another session
-- than p_session, which may be NULL.
CREATE OR REPLACE FUNCTION join_group(
  p_now timestamptz, p_group_id int, p_subscriber text, p_session bigint, p_lease_seconds float
) RETURNS bigint LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET enable_bitmapscan = off SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
  v_now timestamptz := coalesce(p_now, present());
  v_session bigint;
  v_was_there boolean;
BEGIN
  PERFORM 1 FROM log_groups AS g WHERE g.group_id = p_group_id FOR NO KEY UPDATE;
  IF NOT FOUND THEN
    RETURN 0;
  END IF;
  PERFORM 1 FROM log_subscribers AS s
  WHERE s.group_id = p_group_id AND s.subscriber_name = p_subscriber AND s.session <> p_session
    AND s.live_until > v_now;
  IF FOUND THEN
    RETURN NULL;
  END IF;
  PERFORM 1 FROM log_subscribers AS s
  WHERE s.group_id = p_group_id AND s.subscriber_name = p_subscriber;
  v_was_there := FOUND;
  UPDATE log_groups AS g SET generation = g.generation + 1,
    live_subscribers = g.live_subscribers + CASE WHEN v_was_there THEN 0 ELSE 1 END
  WHERE g.group_id = p_group_id
  RETURNING g.generation INTO v_session;
  INSERT INTO log_subscribers AS s (group_id, subscriber_name, session, live_until)
  VALUES (p_group_id, p_subscriber, v_session, v_now + make_interval(secs => p_lease_seconds))
  ON CONFLICT (group_id, subscriber_name) DO UPDATE SET session = excluded.session,
    live_until = excluded.live_until, balanced_generation = -1, balanced_partitions = 0,
    is_short = false;
  IF v_was_there THEN
    PERFORM hand_over_partitions(p_group_id, ARRAY(
      SELECT p.partition_id FROM log_positions AS p
      WHERE p.group_id = p_group_id AND p.held_by = p_subscriber), p_subscriber);
  END IF;
  RETURN v_session;
END $$;

-- Lets a subscriber hold its share: the partitions divided by the live subscribers, and where that
-- leaves some over, one more for the first of them by name. What it has too many of it lets go of,
-- the highest numbers first; of what is free it takes the lowest.
-- share is NULL when it is not in the group any more, with this session.
CREATE OR REPLACE FUNCTION balance_subscriber(
  p_now timestamptz, p_group_id int, p_subscriber text, p_session bigint,
  OUT share int, OUT taken int, OUT released int, OUT removed int
) LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET enable_bitmapscan = off SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_column
DECLARE
  v_group log_groups;
  v_partitions int;
  v_rank int;
  v_held int;
  v_ids bigint[];
BEGIN
  PERFORM 1 FROM log_groups AS g WHERE g.group_id = p_group_id FOR NO KEY UPDATE;
  removed := remove_dead_subscribers(coalesce(p_now, present()), p_group_id);
  PERFORM 1 FROM log_subscribers AS s
  WHERE s.group_id = p_group_id AND s.subscriber_name = p_subscriber AND s.session = p_session;
  IF NOT FOUND THEN
    RETURN;
  END IF;
  v_partitions := make_positions(p_group_id);
  SELECT g.* INTO v_group FROM log_groups AS g WHERE g.group_id = p_group_id;
  SELECT count(*) INTO v_rank FROM log_subscribers AS s
  WHERE s.group_id = p_group_id AND s.subscriber_name < p_subscriber;
  share := v_partitions / v_group.live_subscribers;
  IF v_rank < v_partitions % v_group.live_subscribers THEN
    share := share + 1;
  END IF;
  SELECT count(*) INTO v_held FROM log_positions AS p
  WHERE p.group_id = p_group_id AND p.held_by = p_subscriber;
  taken := 0;
  released := 0;
  IF v_held > share THEN
    v_ids := ARRAY(
      SELECT p.partition_id FROM log_positions AS p
      WHERE p.group_id = p_group_id AND p.held_by = p_subscriber
      ORDER BY p.number DESC LIMIT v_held - share);
    released := cardinality(v_ids);
    PERFORM hand_over_partitions(p_group_id, v_ids, NULL);
  ELSIF v_held < share THEN
    v_ids := ARRAY(
      SELECT p.partition_id FROM log_positions AS p
      WHERE p.group_id = p_group_id AND p.held_by IS NULL
      ORDER BY p.number LIMIT share - v_held);
    taken := cardinality(v_ids);
    PERFORM hand_over_partitions(p_group_id, v_ids, p_subscriber);
  END IF;
  UPDATE log_subscribers AS s SET balanced_generation = v_group.generation,
    balanced_partitions = v_partitions, is_short = v_held + taken < share
  WHERE s.group_id = p_group_id AND s.subscriber_name = p_subscriber;
END $$;

-- Leaves a group. What it held is free. False: it was not in the group, or with another session.
CREATE OR REPLACE FUNCTION leave_group(p_group_id int, p_subscriber text, p_session bigint)
RETURNS boolean LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET enable_bitmapscan = off SET plan_cache_mode = force_generic_plan
AS $$
BEGIN
  PERFORM 1 FROM log_groups AS g WHERE g.group_id = p_group_id FOR NO KEY UPDATE;
  DELETE FROM log_subscribers AS s
  WHERE s.group_id = p_group_id AND s.subscriber_name = p_subscriber AND s.session = p_session;
  IF NOT FOUND THEN
    RETURN false;
  END IF;
  UPDATE log_groups AS g
  SET generation = g.generation + 1, live_subscribers = g.live_subscribers - 1
  WHERE g.group_id = p_group_id;
  PERFORM hand_over_partitions(p_group_id, ARRAY(
    SELECT p.partition_id FROM log_positions AS p
    WHERE p.group_id = p_group_id AND p.held_by = p_subscriber), NULL);
  RETURN true;
END $$;

-- How a subscriber stands: 0, it is not in the group, or with another session; 1, it is dead; 2, its
-- partitions are to be chosen anew, with a heartbeat; 3, all is well.
CREATE OR REPLACE FUNCTION subscriber_standing(
  p_now timestamptz, p_group_id int, p_subscriber text, p_session bigint
) RETURNS int LANGUAGE sql STABLE AS $$
  SELECT coalesce((
    SELECT CASE
      WHEN s.live_until <= p_now THEN 1
      WHEN s.balanced_generation <> g.generation OR s.balanced_partitions <> l.next_partition
        OR (s.is_short AND EXISTS (
          SELECT 1 FROM log_positions AS p WHERE p.group_id = p_group_id AND p.held_by IS NULL))
        THEN 2
      ELSE 3 END
    FROM log_subscribers AS s
    JOIN log_groups AS g ON g.group_id = s.group_id
    JOIN logs AS l ON l.log_id = g.log_id
    WHERE s.group_id = p_group_id AND s.subscriber_name = p_subscriber AND s.session = p_session), 0)
$$;
