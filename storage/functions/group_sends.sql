-- revision 1
-- Sends to queues with groups. Who locks what, and why no statement joins a table, is said in fifo.sql.

-- Inserts the messages whose queue is live and whose deduplication key is new. Positions (from 1)
-- that are missing in `positions` are of deleted queues; `originals` holds, where the message was a
-- duplicate, the id of the first one, whose number then stands in `sequences`.
-- Queues and senders may be one element that holds for all; attributes, systems, delays and ttls may
-- be NULL.
-- Numbers are drawn after all locks of all groups: in a group, the order of numbers is the order of
-- commits. Nearly always all keys are new, and an insert that passes over known ones has them all.
-- Otherwise the keys are gone through once more: a duplicate rewrites its row of fifo_dedup, so it
-- sees a first send that committed after its snapshot, and what was just inserted is what it was.
-- Messages of one flush become visible a microsecond apart, so that groups that come
-- up for the first time are received in the order in which they were sent.
-- On a serial queue a key is new, too, when the message that had it is gone or has ended. Who sends
-- to a group has its lock: so what stands in fifo_dedup for it, and what is read of it in a statement
-- of its own, changes no more but by deletes. A row whose message is gone does no harm.
-- sent_at_us: of the first position, in microseconds; each further one was sent a microsecond later.
CREATE OR REPLACE FUNCTION fifo_send_expiring(
  p_now timestamptz, p_queues int[], p_queue_ids int[], p_message_ids uuid[], p_group_ids text[],
  p_dedup_keys uuid[], p_deduplication_ids text[], p_bodies text[], p_sender_ids text[],
  p_attributes text[], p_systems text[], p_delays int[], p_ttls int[],
  OUT positions bigint[], OUT sequences bigint[], OUT originals uuid[], OUT sent_at_us bigint
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  v_count int := cardinality(p_message_ids);
  v_now timestamptz;
  v_live int[];
  v_serial int[];
  v_free uuid[] := '{}';
  v_numbers bigint[];
  v_inserted int;
  v_new bigint[];
BEGIN
  IF cardinality(p_queue_ids) < v_count THEN
    p_queue_ids := array_fill(p_queue_ids[1], ARRAY[v_count]);
  END IF;
  IF cardinality(p_sender_ids) < v_count THEN
    p_sender_ids := array_fill(p_sender_ids[1], ARRAY[v_count]);
  END IF;
  PERFORM pg_advisory_xact_lock(k.key) FROM (
    SELECT DISTINCT hashtextextended(i.group_id, i.queue_id) AS key
    FROM unnest(p_queue_ids, p_group_ids) AS i (queue_id, group_id) ORDER BY 1) AS k;
  v_now := coalesce(p_now, present());
  sent_at_us := round(date_part('epoch', v_now) * 1000000)::bigint;
  -- OFFSET keeps the partial index of live names out: it would be read from end to end.
  SELECT array_agg(q.queue_id), array_agg(q.queue_id) FILTER (WHERE q.is_serial)
  INTO v_live, v_serial
  FROM (SELECT i.queue_id, i.deleted_at, i.is_serial FROM queues AS i
        WHERE i.queue_id = ANY(p_queues) OFFSET 0) AS q
  WHERE q.deleted_at IS NULL;
  IF v_serial IS NOT NULL THEN
    v_free := serial_free(v_now, v_serial, p_queue_ids, p_group_ids, p_dedup_keys);
  END IF;
  SELECT array_agg(nextval('fifo_sequence')), array_agg(e.position) INTO v_numbers, positions
  FROM unnest(p_message_ids) WITH ORDINALITY AS e (message_id, position);
  IF cardinality(v_live) = cardinality(p_queues) THEN
    INSERT INTO fifo_dedup (queue_id, dedup_key, message_id, sequence, expires_at)
    SELECT e.queue_id, e.dedup_key, e.message_id, e.sequence, v_now
      + CASE WHEN e.queue_id = ANY(v_serial)
        THEN coalesce(e.ttl * interval '1 second', interval '14 days')
        ELSE interval '5 minutes' END
    FROM unnest(p_queue_ids, p_dedup_keys, p_message_ids, v_numbers, p_ttls)
      AS e (queue_id, dedup_key, message_id, sequence, ttl)
    ORDER BY e.queue_id, e.dedup_key
    ON CONFLICT (queue_id, dedup_key) DO NOTHING;
    GET DIAGNOSTICS v_inserted = ROW_COUNT;
  END IF;
  IF v_inserted = v_count THEN
    sequences := v_numbers;
    originals := array_fill(NULL::uuid, ARRAY[v_count]);
  ELSE
    WITH i AS MATERIALIZED (
      SELECT e.*, v_now + CASE WHEN e.queue_id = ANY(v_serial)
          THEN coalesce(e.ttl * interval '1 second', interval '14 days')
          ELSE interval '5 minutes' END AS known_until
      FROM unnest(p_queue_ids, p_dedup_keys, p_message_ids, v_numbers, p_ttls)
        WITH ORDINALITY AS e (queue_id, dedup_key, message_id, sequence, ttl, position)
      WHERE e.queue_id = ANY(v_live)
    ), d AS (
      INSERT INTO fifo_dedup AS f (queue_id, dedup_key, message_id, sequence, expires_at)
      SELECT i.queue_id, i.dedup_key, i.message_id, i.sequence, i.known_until
      FROM i ORDER BY i.queue_id, i.dedup_key
      ON CONFLICT (queue_id, dedup_key) DO UPDATE SET (message_id, sequence, expires_at) = (
        SELECT CASE WHEN n.is_new THEN excluded.message_id ELSE f.message_id END,
          CASE WHEN n.is_new THEN excluded.sequence ELSE f.sequence END,
          CASE WHEN n.is_new THEN excluded.expires_at ELSE f.expires_at END
        FROM (SELECT f.expires_at <= v_now OR f.dedup_key = ANY(v_free) AS is_new) AS n)
      RETURNING f.queue_id, f.dedup_key, f.message_id, f.sequence
    )
    SELECT array_agg(i.position), array_agg(d.sequence),
      array_agg(CASE WHEN d.sequence <> i.sequence THEN d.message_id END),
      coalesce(array_agg(i.position) FILTER (WHERE d.sequence = i.sequence), '{}')
    INTO positions, sequences, originals, v_new
    FROM i JOIN d ON d.dedup_key = i.dedup_key AND d.queue_id = i.queue_id;
  END IF;
  INSERT INTO fifo_messages (queue_id, group_id, sequence, visible_at, sent_at, message_id,
    sender_id, body, attributes, system, deduplication_id, expires_at)
  SELECT e.queue_id, e.group_id, e.sequence,
    v_now + coalesce(e.delay, 0) * interval '1 second'
      - (v_count - e.position) * interval '1 microsecond',
    v_now + (e.position - 1) * interval '1 microsecond', e.message_id,
    e.sender_id, e.body, e.attributes, e.system, e.deduplication_id,
    v_now + e.ttl * interval '1 second'
  FROM unnest(p_queue_ids, p_message_ids, p_group_ids, v_numbers, p_deduplication_ids,
      p_bodies, p_sender_ids, p_attributes, p_systems, p_delays, p_ttls)
    WITH ORDINALITY AS e (queue_id, message_id, group_id, sequence, deduplication_id,
      body, sender_id, attributes, system, delay, ttl, position)
  WHERE v_new IS NULL OR e.position = ANY(v_new);
  -- Who is first of its group inserts the row, if there is none: no other sender can.
  INSERT INTO fifo_groups (queue_id, group_id, ready_at, head_seq)
  SELECT e.queue_id, e.group_id, v_now + coalesce(e.delay, 0) * interval '1 second'
      - (v_count - e.position) * interval '1 microsecond', e.sequence
  FROM unnest(p_queue_ids, p_group_ids, p_delays, v_numbers)
    WITH ORDINALITY AS e (queue_id, group_id, delay, sequence, position)
  WHERE (v_new IS NULL OR e.position = ANY(v_new)) AND NOT EXISTS (
    SELECT 1 FROM fifo_groups AS f
    WHERE f.queue_id = e.queue_id AND f.group_id = e.group_id OFFSET 0)
  ON CONFLICT (queue_id, group_id) DO NOTHING;
  INSERT INTO queue_deltas (queue_id, delta)
  SELECT e.queue_id, count(*)
  FROM unnest(p_queue_ids) WITH ORDINALITY AS e (queue_id, position)
  WHERE v_new IS NULL OR e.position = ANY(v_new)
  GROUP BY e.queue_id;
END $$;

-- As `fifo_send_expiring` of one message, with plain values, for look-ups and inserts that are as
-- plain. NULL for `sequence`: the queue is deleted. Where it is serial, or its key is known already,
-- nothing but a lock has happened yet, and the other function sends it.
CREATE OR REPLACE FUNCTION fifo_send_one(
  p_now timestamptz, p_queue_id int, p_message_id uuid, p_group_id text, p_dedup_key uuid,
  p_deduplication_id text, p_body text, p_sender_id text, p_attributes text, p_system text,
  p_delay int, p_ttl int,
  OUT sequence bigint, OUT original uuid, OUT sent_at_us bigint
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  v_now timestamptz;
  v_number bigint;
  v_inserted int;
BEGIN
  PERFORM pg_advisory_xact_lock(hashtextextended(p_group_id, p_queue_id));
  v_now := coalesce(p_now, present());
  v_number := nextval('fifo_sequence');
  -- OFFSET keeps the partial index of live names out: it would be read from end to end.
  INSERT INTO fifo_dedup (queue_id, dedup_key, message_id, sequence, expires_at)
  SELECT p_queue_id, p_dedup_key, p_message_id, v_number, v_now + interval '5 minutes'
  FROM (SELECT i.deleted_at, i.is_serial FROM queues AS i
        WHERE i.queue_id = p_queue_id OFFSET 0) AS q
  WHERE q.deleted_at IS NULL AND NOT q.is_serial
  ON CONFLICT (queue_id, dedup_key) DO NOTHING;
  GET DIAGNOSTICS v_inserted = ROW_COUNT;
  IF v_inserted = 0 THEN
    SELECT w.sequences[1], w.originals[1], w.sent_at_us INTO sequence, original, sent_at_us
    FROM fifo_send_expiring(p_now, ARRAY[p_queue_id], ARRAY[p_queue_id], ARRAY[p_message_id],
      ARRAY[p_group_id], ARRAY[p_dedup_key], ARRAY[p_deduplication_id], ARRAY[p_body],
      ARRAY[p_sender_id], ARRAY[p_attributes], ARRAY[p_system], ARRAY[p_delay],
      ARRAY[p_ttl]) AS w;
    RETURN;
  END IF;
  INSERT INTO fifo_messages (queue_id, group_id, sequence, visible_at, sent_at, message_id,
    sender_id, body, attributes, system, deduplication_id, expires_at)
  VALUES (p_queue_id, p_group_id, v_number, v_now + p_delay * interval '1 second', v_now,
    p_message_id, p_sender_id, p_body, p_attributes, p_system, p_deduplication_id,
    v_now + p_ttl * interval '1 second');
  IF NOT EXISTS (SELECT 1 FROM fifo_groups AS f
      WHERE f.queue_id = p_queue_id AND f.group_id = p_group_id) THEN
    INSERT INTO fifo_groups (queue_id, group_id, ready_at, head_seq)
    VALUES (p_queue_id, p_group_id, v_now + p_delay * interval '1 second', v_number);
  END IF;
  INSERT INTO queue_deltas (queue_id, delta) VALUES (p_queue_id, 1);
  sequence := v_number;
  sent_at_us := round(date_part('epoch', v_now) * 1000000)::bigint;
END $$;

-- As `fifo_send_expiring`, for gateways that know no expiry.
CREATE OR REPLACE FUNCTION fifo_send(
  p_now timestamptz, p_queues int[], p_queue_ids int[], p_message_ids uuid[], p_group_ids text[],
  p_dedup_keys uuid[], p_deduplication_ids text[], p_bodies text[], p_sender_ids text[],
  p_attributes text[], p_systems text[], p_delays int[],
  OUT positions bigint[], OUT sequences bigint[], OUT originals uuid[]
) LANGUAGE sql AS $$
  SELECT w.positions, w.sequences, w.originals
  FROM fifo_send_expiring(p_now, p_queues, p_queue_ids, p_message_ids, p_group_ids, p_dedup_keys,
    p_deduplication_ids, p_bodies, p_sender_ids, p_attributes, p_systems, p_delays, NULL) AS w
$$;
