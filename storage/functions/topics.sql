-- revision 1

-- Numbers what is published to FIFO topics, in the order of the arrays, and tells duplicates: the
-- message id and number that come back for a position are those of the first message with its
-- deduplication key in five minutes. The locks of the groups last until the transaction ends, so
-- that all queues of a topic get the messages of a group in the order of their numbers. Whoever
-- sends to queues afterwards takes the locks of their groups after these. The topic's shared lock,
-- taken before a number is drawn, is what `replays.hold_topic` waits for.
CREATE OR REPLACE FUNCTION topic_number(
  p_now timestamptz, p_topic_ids int[], p_group_ids text[], p_dedup_keys uuid[],
  p_message_ids uuid[], OUT sequences bigint[], OUT message_ids uuid[], OUT numbered_at timestamptz
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  v_now timestamptz;
BEGIN
  PERFORM pg_advisory_xact_lock_shared(k.key) FROM (
    SELECT DISTINCT hashtextextended('', -1 - i.topic_id::bigint) AS key
    FROM unnest(p_topic_ids) AS i (topic_id) ORDER BY 1) AS k;
  PERFORM pg_advisory_xact_lock(k.key) FROM (
    SELECT DISTINCT hashtextextended(i.group_id, -1 - i.topic_id::bigint) AS key
    FROM unnest(p_topic_ids, p_group_ids) AS i (topic_id, group_id) ORDER BY 1) AS k;
  v_now := coalesce(p_now, present());
  WITH i AS MATERIALIZED (
    SELECT e.*, nextval('topic_sequence') AS sequence
    FROM unnest(p_topic_ids, p_dedup_keys, p_message_ids)
      WITH ORDINALITY AS e (topic_id, dedup_key, message_id, position)
  ), first AS MATERIALIZED (
    -- In the order of the key: two flushes with the same keys wait for each other in one order.
    SELECT DISTINCT ON (i.topic_id, i.dedup_key) i.*
    FROM i ORDER BY i.topic_id, i.dedup_key, i.position
  )
  INSERT INTO topic_dedup AS d (topic_id, dedup_key, message_id, sequence, expires_at)
  SELECT f.topic_id, f.dedup_key, f.message_id, f.sequence, v_now + interval '5 minutes'
  FROM first AS f ORDER BY f.topic_id, f.dedup_key
  ON CONFLICT (topic_id, dedup_key) DO UPDATE
  SET message_id = excluded.message_id, sequence = excluded.sequence,
      expires_at = excluded.expires_at
  WHERE d.expires_at <= v_now;
  SELECT array_agg(d.sequence ORDER BY i.position), array_agg(d.message_id ORDER BY i.position)
  INTO sequences, message_ids
  FROM unnest(p_topic_ids, p_dedup_keys) WITH ORDINALITY AS i (topic_id, dedup_key, position),
    LATERAL (
      SELECT t.sequence, t.message_id FROM topic_dedup AS t
      WHERE t.topic_id = i.topic_id AND t.dedup_key = i.dedup_key OFFSET 0) AS d;
  numbered_at := v_now;
END
$$;
