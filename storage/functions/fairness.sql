-- revision 2
-- Fair queues: standard queues whose messages have a MessageGroupId (docs/contract/sqs.md 2.5).

-- The message group of a standard message, escaped as in its system attributes; NULL: it has none.
-- Not read as JSON, because an escape that text cannot hold would fail the whole receive. The name
-- stands in no other value: quotes within a value are escaped. The pattern costs ten times as much.
CREATE OR REPLACE FUNCTION standard_group(p_system text) RETURNS text LANGUAGE sql IMMUTABLE
RETURN CASE WHEN position('\' IN p_system) = 0
  THEN nullif(split_part(split_part(p_system, '"MessageGroupId":', 2), '"', 2), '')
  ELSE substring(p_system FROM '"MessageGroupId": ?"((?:[^"\\]|\\.)*)"') END;

-- Locks up to `p_limit` visible messages, the first by visibility: of group `p_only` (NULL: of any),
-- of none of the groups in `p_not`, and none of `p_taken`. It looks at about 2,000 messages from
-- `p_from` on, few at first, so that a long backlog of other groups costs no more. `reached` is where
-- the next look begins: every message left of it was looked at, or is leased now.
CREATE OR REPLACE FUNCTION fair_scan(
  p_now timestamptz, p_queue_id int, p_retention int, p_is_fresh boolean, p_from timestamptz,
  p_until timestamptz, p_limit int, p_only text, p_not text[], p_taken tid[],
  OUT taken tid[], OUT reached timestamptz
) LANGUAGE plpgsql AS $$
DECLARE
  v_part int := 50;
  v_from timestamptz := p_from;
  v_count int;
  v_end timestamptz;
  v_last timestamptz;
  v_found tid[];
BEGIN
  taken := '{}';
  LOOP
    reached := p_until;
    -- No UNION of both: a statement prepares its idle branches, too, which costs more than they do.
    IF p_is_fresh THEN
      SELECT count(*), max(e.visible_at) INTO v_count, v_end FROM (
        SELECT m.visible_at FROM messages AS m
        WHERE m.queue_id = p_queue_id AND m.receive_count = 0
          AND m.visible_at >= v_from AND m.visible_at <= p_until
        ORDER BY m.visible_at LIMIT v_part) AS e;
      EXIT WHEN v_count = 0;
      SELECT array_agg(f.ctid), max(f.visible_at) INTO v_found, v_last FROM (
        SELECT m.ctid, m.visible_at FROM messages AS m
        WHERE m.queue_id = p_queue_id AND m.receive_count = 0
          AND m.visible_at >= v_from AND m.visible_at <= v_end
          AND m.sent_at > p_now - make_interval(secs => p_retention)
          AND (m.expires_at IS NULL OR m.expires_at > p_now)
          AND (p_only IS NULL OR standard_group(m.system) = p_only)
          AND (p_not IS NULL OR coalesce(standard_group(m.system) <> ALL(p_not), true))
          AND (p_taken IS NULL OR m.ctid <> ALL(p_taken))
        ORDER BY m.visible_at LIMIT p_limit - cardinality(taken) FOR NO KEY UPDATE SKIP LOCKED) AS f;
    ELSE
      SELECT count(*), max(e.visible_at) INTO v_count, v_end FROM (
        SELECT m.visible_at FROM messages AS m
        WHERE m.queue_id = p_queue_id AND m.receive_count > 0
          AND m.visible_at >= v_from AND m.visible_at <= p_until
        ORDER BY m.visible_at LIMIT v_part) AS e;
      EXIT WHEN v_count = 0;
      SELECT array_agg(r.ctid), max(r.visible_at) INTO v_found, v_last FROM (
        SELECT m.ctid, m.visible_at FROM messages AS m
        WHERE m.queue_id = p_queue_id AND m.receive_count > 0
          AND m.visible_at >= v_from AND m.visible_at <= v_end
          AND m.sent_at > p_now - make_interval(secs => p_retention)
          AND (m.expires_at IS NULL OR m.expires_at > p_now)
          AND (p_only IS NULL OR standard_group(m.system) = p_only)
          AND (p_not IS NULL OR coalesce(standard_group(m.system) <> ALL(p_not), true))
          AND (p_taken IS NULL OR m.ctid <> ALL(p_taken))
        ORDER BY m.visible_at LIMIT p_limit - cardinality(taken) FOR NO KEY UPDATE SKIP LOCKED) AS r;
    END IF;
    taken := taken || coalesce(v_found, '{}');
    reached := CASE
      WHEN cardinality(taken) = p_limit THEN v_last
      WHEN v_count = v_part THEN v_end + interval '1 microsecond'
      ELSE p_until END;
    EXIT WHEN cardinality(taken) = p_limit OR v_count < v_part OR v_part >= 1600;
    v_from := reached;
    v_part := v_part * 2;
  END LOOP;
END $$;

-- Leases up to `p_limit` messages of one queue with noisy groups. The first two places are those of
-- quiet groups, received before and fresh, from where they were left; the next two are the same
-- further left, for what was committed late; two follow for each noisy group, in its order, and the
-- last two are for whatever is left. `p_froms` and `p_untils` are the reach of each place, without
-- an end for those that go up to the present. The first row has no message
-- but `reached`, the next beginning of each place.
CREATE OR REPLACE FUNCTION fair_receive(
  p_now timestamptz, p_queue_id int, p_limit int, p_retention int, p_visibility_ms int,
  p_noisy text[], p_froms timestamptz[], p_untils timestamptz[]
) RETURNS TABLE (
  queue_id int, sequence bigint, message_id uuid, receive_count int, body text, sender_id text,
  attributes text, system text, sent_at_ms bigint, first_received_at_ms bigint, group_id text,
  deduplication_id text, leased_at timestamptz, body_md5 bytea, reached timestamptz[]
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  v_now timestamptz := coalesce(p_now, present());
  v_last int := cardinality(p_froms) - 1;
  v_left int := p_limit;
  v_taken tid[] := '{}';
  v_reached timestamptz[] := p_froms;
  v_scan record;
BEGIN
  FOR i IN 1 .. cardinality(p_froms) LOOP
    CONTINUE WHEN p_froms[i] >= p_untils[i];
    v_scan := fair_scan(
      v_now, p_queue_id, p_retention, i % 2 = 0, p_froms[i], least(p_untils[i], v_now), v_left,
      CASE WHEN i > 4 AND i < v_last THEN p_noisy[(i - 3) / 2] END,
      CASE WHEN i <= 4 THEN p_noisy END, CASE WHEN i >= v_last THEN v_taken END);
    -- Left open for the time that a send takes until its commit.
    v_reached[i] := CASE WHEN p_untils[i] IS NULL AND v_scan.reached = v_now
      THEN greatest(p_froms[i], v_now - interval '250 milliseconds') ELSE v_scan.reached END;
    v_taken := v_taken || v_scan.taken;
    v_left := p_limit - cardinality(v_taken);
    EXIT WHEN v_left = 0;
  END LOOP;
  leased_at := v_now;
  reached := v_reached;
  RETURN NEXT;
  RETURN QUERY UPDATE messages AS m
  SET receive_count = m.receive_count + 1,
      first_received_at = coalesce(m.first_received_at, v_now),
      visible_at = v_now + p_visibility_ms * interval '1 millisecond'
  WHERE m.ctid = ANY(v_taken) AND m.queue_id = p_queue_id
  RETURNING m.queue_id, m.sequence, m.message_id, m.receive_count, m.body, m.sender_id,
    m.attributes, m.system, floor(date_part('epoch', m.sent_at) * 1000)::bigint,
    floor(date_part('epoch', m.first_received_at) * 1000)::bigint, NULL::text, NULL::text, v_now,
    m.body_md5, NULL::timestamptz[];
END $$;
