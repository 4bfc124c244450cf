-- revision 1
-- Events of accounts that record them. Triggers turn changes of rows into notifications of the same
-- transaction: of each face, kind of queue and process, in the order of commits, and none without
-- its commit. The triggers exist only while an account records, because a trigger with a transition
-- table copies every written row. Functions have a search path of their own: operators may write
-- rows, too.

-- Notifies all processes of an event, whose number is unique.
CREATE OR REPLACE FUNCTION note_event(p_account_id text, p_event json) RETURNS void LANGUAGE sql
SET search_path FROM CURRENT AS $$
  SELECT pg_notify('queuegate_events', json_build_object('id', nextval('event_sequence'),
    'account', p_account_id, 'at', extract(epoch FROM present()),
    'event', json_strip_nulls(p_event))::text)
$$;

-- The same of a message.
CREATE OR REPLACE FUNCTION note_message(
  p_kind text, p_account_id text, p_region text, p_queue_name text, p_message_id uuid, p_count int,
  p_target_name text DEFAULT NULL, p_ends_at timestamptz DEFAULT NULL
) RETURNS void LANGUAGE sql SET search_path FROM CURRENT AS $$
  SELECT note_event(p_account_id, json_build_object('kind', p_kind, 'region', p_region,
    'queue', p_queue_name, 'message_id', p_message_id, 'receive_count', p_count,
    'dead_letter_queue', p_target_name, 'ends_at', extract(epoch FROM p_ends_at)))
$$;

-- Those of the live queues whose account records. `most` is the number of receives after which a
-- message moves to `target_id`, its dead-letter queue. OFFSET keeps the partial index of live names
-- out: it would be read from end to end.
CREATE OR REPLACE FUNCTION recorded_queues(p_queue_ids int[]) RETURNS TABLE (
  queue_id int, account_id text, region text, queue_name text, retention interval, most int,
  target_id int
) LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
  SELECT q.queue_id, q.account_id, q.region, q.queue_name,
    coalesce((q.attributes ->> 'MessageRetentionPeriod')::int, 345600) * interval '1 second',
    CASE WHEN t.queue_id IS NULL THEN q.max_deliveries
      ELSE ((q.attributes ->> 'RedrivePolicy')::json ->> 'maxReceiveCount')::int END,
    t.queue_id
  FROM (SELECT i.* FROM queues AS i WHERE i.queue_id = ANY(p_queue_ids) OFFSET 0) AS q
  LEFT JOIN LATERAL (
    SELECT d.queue_id FROM queues AS d
    WHERE d.account_id = split_part(q.dead_letter_arn, ':', 5) AND d.deleted_at IS NULL
      AND d.region = split_part(q.dead_letter_arn, ':', 4)
      AND d.queue_name = split_part(q.dead_letter_arn, ':', 6)) AS t ON true
  WHERE q.deleted_at IS NULL
    AND q.account_id IN (SELECT r.account_id FROM event_recordings AS r)
$$;

-- Trigger of messages and fifo_messages. A row of the latter has NULL for columns of the former, and
-- the other way round. A message that is written as received was handed to a receive that waited.
-- One that was received too often is leased to be moved, and not delivered; the statement that moves
-- it deletes it from its queue. Listeners decide by their clock if a deleted message has expired.
CREATE OR REPLACE FUNCTION note_messages() RETURNS trigger LANGUAGE plpgsql
SET search_path FROM CURRENT SET enable_hashjoin = on SET plan_cache_mode = auto AS $$
BEGIN
  IF TG_OP = 'INSERT' THEN
    PERFORM note_message(k.kind, q.account_id, q.region, coalesce(d.source, q.queue_name),
      n.message_id, coalesce(nullif(n.prior_count, 0), CASE k.kind WHEN 'received' THEN 1 END),
      CASE WHEN d.source IS NOT NULL THEN q.queue_name END)
    FROM (SELECT 0 AS receive_count) AS missing, LATERAL (
      SELECT x.queue_id, x.sequence, x.message_id, x.system, x.prior_count, receive_count
      FROM new_rows AS x) AS n
    JOIN recorded_queues(ARRAY(SELECT DISTINCT i.queue_id FROM new_rows AS i)) AS q
      ON q.queue_id = n.queue_id, LATERAL (
      SELECT CASE WHEN n.prior_count > 0 AND n.system LIKE '%DeadLetterQueueSourceArn%'
        THEN split_part(n.system::jsonb ->> 'DeadLetterQueueSourceArn', ':', 6) END AS source) AS d,
    unnest(CASE WHEN d.source IS NOT NULL THEN ARRAY['dead_lettered']
      WHEN n.receive_count > 0 THEN ARRAY['sent', 'received'] ELSE ARRAY['sent'] END)
      WITH ORDINALITY AS k (kind, place)
    ORDER BY n.sequence, k.place;
  ELSIF TG_OP = 'UPDATE' THEN
    PERFORM note_message('received', q.account_id, q.region, q.queue_name, n.message_id,
      n.receive_count)
    FROM new_rows AS n
    JOIN old_rows AS o ON o.queue_id = n.queue_id AND o.sequence = n.sequence
    JOIN recorded_queues(ARRAY(SELECT DISTINCT i.queue_id FROM new_rows AS i)) AS q
      ON q.queue_id = n.queue_id
    WHERE n.receive_count > o.receive_count
      AND (n.receive_count - coalesce(n.prior_count, 0) > q.most) IS NOT TRUE
    ORDER BY n.sequence;
  ELSE
    PERFORM note_message('deleted', q.account_id, q.region, q.queue_name, o.message_id,
      o.receive_count, NULL, least(o.sent_at + q.retention, o.expires_at))
    FROM (SELECT NULL::int AS receive_count, NULL::text AS group_id) AS missing, LATERAL (
      SELECT x.queue_id, x.sequence, x.message_id, x.sent_at, x.expires_at, receive_count, group_id
      FROM old_rows AS x) AS o
    JOIN recorded_queues(ARRAY(SELECT DISTINCT i.queue_id FROM old_rows AS i)) AS q
      ON q.queue_id = o.queue_id
    WHERE NOT EXISTS (
        SELECT FROM messages AS m WHERE m.queue_id = q.target_id AND m.sequence = o.sequence)
      AND NOT EXISTS (
        SELECT FROM fifo_messages AS m WHERE m.queue_id = q.target_id AND m.group_id = o.group_id
          AND m.message_id = o.message_id)
    ORDER BY o.sequence;
  END IF;
  RETURN NULL;
END $$;

-- Trigger of fifo_groups: a receive adds a message to the deliveries of its group, or counts again.
CREATE OR REPLACE FUNCTION note_fifo_receives() RETURNS trigger LANGUAGE plpgsql
SET search_path FROM CURRENT SET enable_hashjoin = on SET plan_cache_mode = auto AS $$
BEGIN
  PERFORM note_message('received', q.account_id, q.region, q.queue_name, m.message_id, d.rc)
  FROM new_rows AS n
  JOIN old_rows AS o ON o.queue_id = n.queue_id AND o.group_id = n.group_id
  JOIN recorded_queues(ARRAY(SELECT DISTINCT i.queue_id FROM new_rows AS i)) AS q
    ON q.queue_id = n.queue_id, unnest(n.d_seq, n.d_rc) AS d (seq, rc), LATERAL (
    SELECT x.message_id, x.prior_count FROM fifo_messages AS x
    WHERE x.queue_id = n.queue_id AND x.group_id = n.group_id AND x.sequence = d.seq OFFSET 0) AS m
  WHERE d.rc > coalesce(o.d_rc[array_position(o.d_seq, d.seq)], m.prior_count)
    AND (d.rc - m.prior_count > q.most) IS NOT TRUE
  ORDER BY d.seq;
  RETURN NULL;
END $$;

-- Creates or drops the triggers of a table. They are dropped only when no account records, which the
-- lock decides between processes. The wait for statements under way is short: later writes of the
-- table wait behind it.
CREATE OR REPLACE FUNCTION watch_table(p_table text, p_is_wanted boolean) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT SET lock_timeout = '2s' AS $$
DECLARE
  v_rows jsonb := '{"INSERT": "NEW TABLE AS new_rows", "DELETE": "OLD TABLE AS old_rows",
    "UPDATE": "OLD TABLE AS old_rows NEW TABLE AS new_rows"}';
  v_event text;
BEGIN
  PERFORM pg_advisory_xact_lock(x'5147'::int, 4);
  IF NOT p_is_wanted AND EXISTS (SELECT FROM event_recordings) THEN
    RETURN;
  END IF;
  FOREACH v_event IN ARRAY CASE p_table WHEN 'messages' THEN ARRAY['INSERT', 'UPDATE', 'DELETE']
    WHEN 'fifo_messages' THEN ARRAY['INSERT', 'DELETE'] ELSE ARRAY['UPDATE'] END
  LOOP
    IF p_is_wanted = EXISTS (SELECT FROM pg_trigger AS t WHERE t.tgrelid = p_table::regclass
      AND t.tgname = 'note_' || lower(v_event))
    THEN
      CONTINUE;
    ELSIF p_is_wanted THEN
      EXECUTE format('CREATE TRIGGER %I AFTER %s ON %I REFERENCING %s FOR EACH STATEMENT '
        'EXECUTE FUNCTION %I()', 'note_' || lower(v_event), v_event, p_table, v_rows ->> v_event,
        CASE p_table WHEN 'fifo_groups' THEN 'note_fifo_receives' ELSE 'note_messages' END);
    ELSE
      EXECUTE format('DROP TRIGGER %I ON %I', 'note_' || lower(v_event), p_table);
    END IF;
  END LOOP;
END $$;
