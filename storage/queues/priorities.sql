-- Standard queues whose messages have priorities or an expiry: differences from standard_queues.sql. Both
-- statements run on lanes, for many callers and many queues. Plain queues have their own
-- statements, to avoid empty arrays and probes of eleven priorities.

-- name: insert
-- params: now, queue_ids, message_ids, bodies, sender_ids, attributes, systems, delays, distinct_ids, distinct_counts, body_md5s, body_places, wants_sequences, is_async, priorities, ttls, urgent_ids
-- As `insert` of standard_queues.sql, with a priority and a time to live for each, NULL for none, for
-- standard queues with or without priorities. urgent_ids are the queues of messages with either:
-- their receives go by priority from the commit on. There a message without priority has 0.
WITH clock AS MATERIALIZED (
  SELECT coalesce($1::timestamptz, present()) AS now
), live AS MATERIALIZED (
  -- OFFSET keeps the partial index of live names out: it would be read from end to end.
  SELECT q.queue_id, q.has_priorities
  FROM (SELECT queue_id, has_priorities, deleted_at FROM queues
        WHERE queue_id = ANY($9::int[]) OFFSET 0) AS q
  WHERE q.deleted_at IS NULL
), sent AS (
  INSERT INTO messages (queue_id, visible_at, sent_at, message_id, body_md5, sender_id, body,
    attributes, system, priority, expires_at)
  SELECT i.queue_id,
         clock.now + coalesce(i.delay, 0) * interval '1 second'
           - (octet_length($11::bytea) / 16 - i.position) * interval '1 microsecond',
         clock.now, i.message_id, substr($11::bytea, (i.position * 16 - 15)::int, 16),
         coalesce(i.sender_id, ($5::text[])[1]),
         CASE WHEN i.body_place IS NULL THEN i.body ELSE ($4::text[])[i.body_place] END,
         i.attributes, i.system,
         coalesce(i.priority, CASE WHEN i.queue_id = ANY($17::int[]) OR i.queue_id = ANY(ARRAY(
           SELECT live.queue_id FROM live WHERE live.has_priorities)) THEN 0 END),
         clock.now + i.ttl * interval '1 second'
  FROM clock, (
    SELECT coalesce(e.queue_id, ($2::int[])[1]) AS queue_id, e.message_id, e.body, e.sender_id,
      e.attributes, e.system, e.delay, e.body_place, e.priority, e.ttl, e.position
    FROM unnest($2::int[], ($3::text)::uuid[], $4::text[], $5::text[], $6::text[], $7::text[],
                $8::int[], ($12::text)::int[], $15::smallint[], $16::int[])
      WITH ORDINALITY AS e (queue_id, message_id, body, sender_id, attributes, system, delay,
                            body_place, priority, ttl, position)) AS i
  WHERE i.queue_id = ANY(ARRAY(SELECT live.queue_id FROM live))
  RETURNING sequence
), counted AS (
  INSERT INTO queue_deltas (queue_id, delta)
  SELECT i.queue_id, i.sent FROM unnest($9::int[], $10::int[]) AS i (queue_id, sent)
  WHERE i.queue_id = ANY(ARRAY(SELECT live.queue_id FROM live))
)
SELECT ARRAY(SELECT queue_id FROM live) AS live, now,
  CASE WHEN $13 THEN ARRAY(SELECT sent.sequence FROM sent ORDER BY sent.sequence) END AS sequences,
  CASE WHEN $14 THEN set_config('synchronous_commit', 'off', true) END,
  ARRAY(SELECT prioritise(live.queue_id) FROM live
        WHERE NOT live.has_priorities AND live.queue_id = ANY($17::int[])) AS prioritised
FROM clock

-- name: receive
-- params: now, queue_ids, limits, fresh_marks, received_marks, retentions, visibilities_ms
-- Leases at most `limit` messages of each queue, most urgent priority first; within each, expired
-- leases before messages never received, as `receive` of standard_queues.sql; messages that became visible
-- at once go by number. Stops at the limit.
-- Messages sent before the queue had priorities have NULL. They are only in the indexes of plain
-- queues, together with those of priority 0: when a receive reaches them, only these two are
-- visible there. Of the first `limit` of both, NULL goes first and the first of 0 fill the rest:
-- together the oldest of both, and no more are read. NULL messages behind expired ones of any
-- priority wait for their removal. NULL messages left of a mark that rose meanwhile wait for the
-- next scan from the far left: a scan behind a million takes seconds.
-- Rows found are checked again by ctid alone, with conditions that match no index: planned on a
-- table without statistics, an index scan reads everything, once for each priority.
-- Marks are twelve for each queue, in this order: nothing visible lies left of them. No message is
-- in two of these ranges. There is always a row, with `leased_at` alone if nothing was found, so
-- that marks rise past expired messages.
WITH clock AS MATERIALIZED (
  SELECT coalesce($1::timestamptz, present()) AS now
), picked AS MATERIALIZED (
  SELECT p.ctid FROM clock,
    unnest($2::int[], $3::int[], $6::int[]) WITH ORDINALITY AS q (queue_id, max, retention, place),
    LATERAL (
      SELECT m.ctid
      FROM unnest('{10,9,8,7,6,5,4,3,2,1,NULL,0}'::smallint[]) WITH ORDINALITY
        AS level (priority, place),
      LATERAL (SELECT ($4::timestamptz[])[(q.place - 1) * 12 + level.place] AS fresh,
                      ($5::timestamptz[])[(q.place - 1) * 12 + level.place] AS received
               OFFSET 0) AS mark,
      LATERAL (
        SELECT r.ctid FROM (
          SELECT m.ctid FROM messages AS m
          WHERE m.ctid = ANY(ARRAY(SELECT w.ctid FROM (
              SELECT o.ctid, o.priority FROM messages AS o
              WHERE level.priority IS NULL AND o.queue_id = q.queue_id AND o.receive_count > 0
                AND o.visible_at >= mark.received AND o.visible_at <= clock.now
                AND o.sent_at > clock.now - make_interval(secs => q.retention)
              ORDER BY o.visible_at LIMIT q.max) AS w WHERE w.priority IS NULL))
            AND m.receive_count + 0 > 0 AND m.visible_at + interval '0' <= clock.now
          FOR NO KEY UPDATE SKIP LOCKED) AS r
        UNION ALL
        SELECT f.ctid FROM (
          SELECT m.ctid FROM messages AS m
          WHERE m.ctid = ANY(ARRAY(SELECT w.ctid FROM (
              SELECT o.ctid, o.priority FROM messages AS o
              WHERE level.priority IS NULL AND o.queue_id = q.queue_id AND o.receive_count = 0
                AND o.visible_at >= greatest(mark.fresh,
                  clock.now - make_interval(secs => q.retention))
                AND o.visible_at <= clock.now
                AND o.sent_at > clock.now - make_interval(secs => q.retention)
              ORDER BY o.visible_at LIMIT q.max) AS w WHERE w.priority IS NULL))
            AND m.receive_count + 0 = 0 AND m.visible_at + interval '0' <= clock.now
          FOR NO KEY UPDATE SKIP LOCKED) AS f
        UNION ALL
        SELECT r.ctid FROM (
          SELECT m.ctid FROM messages AS m
          WHERE m.queue_id = q.queue_id AND m.priority = level.priority
            AND least(m.receive_count, 1) = 1
            AND m.visible_at >= mark.received AND m.visible_at <= clock.now
            AND coalesce(m.expires_at, 'infinity') > clock.now
            AND m.sent_at > clock.now - make_interval(secs => q.retention)
          ORDER BY m.visible_at, m.sequence LIMIT q.max FOR NO KEY UPDATE SKIP LOCKED) AS r
        UNION ALL
        SELECT f.ctid FROM (
          SELECT m.ctid FROM messages AS m
          WHERE m.queue_id = q.queue_id AND m.priority = level.priority
            AND least(m.receive_count, 1) = 0
            AND m.visible_at >= greatest(mark.fresh, clock.now - make_interval(secs => q.retention))
            AND m.visible_at <= clock.now
            AND coalesce(m.expires_at, 'infinity') > clock.now
            AND m.sent_at > clock.now - make_interval(secs => q.retention)
          ORDER BY m.visible_at, m.sequence LIMIT q.max FOR NO KEY UPDATE SKIP LOCKED) AS f
      ) AS m
      LIMIT q.max) AS p
), leased AS (
  UPDATE messages AS m
  SET receive_count = m.receive_count + 1,
      first_received_at = coalesce(m.first_received_at, clock.now),
      visible_at = clock.now
        + ($7::int[])[array_position($2::int[], m.queue_id)] * interval '1 millisecond'
  FROM clock
  WHERE m.ctid = ANY(ARRAY(SELECT picked.ctid FROM picked))
  RETURNING m.queue_id, m.sequence, m.message_id, m.receive_count, m.body, m.sender_id,
    m.attributes, m.system,
    floor(date_part('epoch', m.sent_at) * 1000)::bigint AS sent_at_ms,
    floor(date_part('epoch', m.first_received_at) * 1000)::bigint AS first_received_at_ms,
    m.body_md5, m.priority, floor(date_part('epoch', m.expires_at) * 1000)::bigint AS expires_at_ms
)
SELECT l.queue_id, l.sequence, l.message_id, l.receive_count, l.body, l.sender_id, l.attributes,
  l.system, l.sent_at_ms, l.first_received_at_ms, NULL::text AS group_id,
  NULL::text AS deduplication_id, clock.now AS leased_at, l.body_md5, l.priority, l.expires_at_ms
FROM clock LEFT JOIN leased AS l ON true
