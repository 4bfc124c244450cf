-- revision 3
-- How many more messages queues may hold that hold only so many.

-- Locks the bounded queues among these against all others that add to them, to the end of the
-- transaction and in the order of their ids, and answers what room each has then, and how many
-- messages wait for it, those that would not fit into the room not counted to the end. The other
-- queues are absent. All numbers are of snapshots that are younger than the locks: nobody has added
-- since, and what others take away meanwhile makes more room than that. What has expired takes none,
-- although it is there until a worker removes it; it is counted only where little room is left.
-- These locks come first in a transaction: before those of topics and groups (functions/topics.sql,
-- functions/fifo.sql).
CREATE OR REPLACE FUNCTION hold_rooms(
  p_now timestamptz, p_queue_ids int[], OUT queue_ids int[], OUT rooms bigint[], OUT waiting bigint[]
) LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_column
DECLARE
  v_most int[];
  v_id int;
  v_held text;
BEGIN
  -- OFFSET keeps the partial index of live names out: it would be read from end to end.
  SELECT array_agg(q.queue_id ORDER BY q.queue_id), array_agg(q.most_messages ORDER BY q.queue_id)
  INTO queue_ids, v_most
  FROM (SELECT k.queue_id, k.most_messages FROM queues AS k
        WHERE k.queue_id = ANY(p_queue_ids) OFFSET 0) AS q
  WHERE q.most_messages IS NOT NULL;
  IF queue_ids IS NULL THEN
    RETURN;
  END IF;
  FOREACH v_id IN ARRAY queue_ids LOOP
    v_held := pg_advisory_xact_lock(1819242339, v_id);
  END LOOP;
  SELECT array_agg(n.room ORDER BY i.position), array_agg(n.waiting ORDER BY i.position)
  INTO rooms, waiting
  FROM unnest(queue_ids, v_most) WITH ORDINALITY AS i (queue_id, most, position), LATERAL (
    SELECT t.room, (
      SELECT count(*) FROM (
        SELECT 1 FROM waiting_messages AS w WHERE w.queue_id = i.queue_id
        LIMIT greatest(t.room, 0) + 1000) AS x) AS waiting
    FROM (SELECT i.most - coalesce(sum(d.delta), 0)::bigint AS room FROM queue_deltas AS d
          WHERE d.queue_id = i.queue_id) AS t) AS n;
  IF 1000 > ANY (rooms) THEN
    -- After the sum: what was removed in between counts as there still, and takes room once more.
    rooms := ARRAY(
      SELECT i.room + CASE WHEN i.room >= 1000 THEN 0 ELSE
        (SELECT count(*) FROM (
          SELECT 1 FROM messages AS m
          WHERE m.queue_id = i.queue_id AND m.expires_at <= clock.now LIMIT 1000) AS x)
        + (SELECT count(*) FROM (
          SELECT 1 FROM fifo_messages AS m
          WHERE m.queue_id = i.queue_id AND m.expires_at <= clock.now LIMIT 1000) AS x) END
      FROM (SELECT coalesce(p_now, present()) AS now) AS clock,
        unnest(queue_ids, rooms) WITH ORDINALITY AS i (queue_id, room, position)
      ORDER BY i.position);
  END IF;
END $$;
