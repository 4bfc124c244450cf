-- revision 3
-- Serial queues: what differs from FIFO queues, whose tables and locks they have (fifo.sql says who
-- locks what, and why no statement joins a table). Of a group one message is delivered at a time.

-- Of these deduplication keys, whose groups the caller has locked as a sender, those of serial queues
-- whose message is gone, or ended by its own expiry or its queue's retention. Queues have keys of
-- their own there (`serial_key` in storage/queues/messages.py).
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

-- The row of fifo_dedup that a message of a serial queue has: as `serial_key` in
-- storage/queues/messages.py makes it. No two pairs of ids make the same text.
CREATE OR REPLACE FUNCTION serial_key(p_queue_id int, p_group_id text, p_deduplication_id text)
RETURNS uuid LANGUAGE sql STABLE AS $$
  SELECT encode(substr(sha256(convert_to(
    p_queue_id || ':' || octet_length(p_group_id) || ':' || p_group_id || p_deduplication_id,
    'UTF8')), 1, 16), 'hex')::uuid
$$;
