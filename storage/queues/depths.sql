-- Depths of queues and priorities, and the oldest and the newest message of a queue, for display.

-- name: depths
-- params: now, most
-- Total from the deltas, hidden from bounded index counts; the rest is visible. A bounded queue
-- also has its capacity and the number of messages waiting for it; NULL for other queues.
WITH clock AS MATERIALIZED (
  SELECT coalesce($1::timestamptz, present()) AS now
), chosen AS MATERIALIZED (
  SELECT q.queue_id, q.account_id, q.region, q.queue_name, q.is_fifo, q.has_priorities,
    q.most_messages
  FROM queues AS q
  WHERE q.deleted_at IS NULL ORDER BY q.queue_id LIMIT $2
), totals AS MATERIALIZED (
  SELECT d.queue_id, sum(d.delta)::bigint AS total FROM queue_deltas AS d GROUP BY d.queue_id
)
SELECT c.account_id, c.region, c.queue_name,
  greatest(coalesce(t.total, 0) - h.hidden - e.expired, 0) AS visible, h.hidden,
  c.most_messages, CASE WHEN c.most_messages IS NOT NULL THEN (
    SELECT count(*) FROM (
      SELECT 1 FROM waiting_messages AS w WHERE w.queue_id = c.queue_id LIMIT 120000) AS x)
  END AS waiting
FROM clock, chosen AS c
LEFT JOIN totals AS t ON t.queue_id = c.queue_id,
LATERAL (
  SELECT CASE WHEN coalesce(t.total, 0) = 0 OR NOT c.has_priorities THEN 0 ELSE (
    SELECT count(*) FROM messages AS m
    WHERE m.queue_id = c.queue_id AND m.expires_at <= clock.now)
  END AS expired
) AS e,
LATERAL (
  SELECT CASE
    WHEN coalesce(t.total, 0) = 0 THEN 0
    WHEN c.is_fifo THEN (
      SELECT coalesce(sum((SELECT count(*) FROM unnest(g.d_until) AS u WHERE u > clock.now)), 0)
      FROM (SELECT f.d_until FROM fifo_groups AS f
            WHERE f.queue_id = c.queue_id AND f.ready_at > clock.now LIMIT 120000) AS g)
    ELSE (
      SELECT count(*) FROM (
        SELECT 1 FROM messages AS m
        WHERE m.queue_id = c.queue_id AND m.receive_count > 0 AND m.visible_at > clock.now
          AND (m.expires_at IS NULL OR m.expires_at > clock.now)
        LIMIT 120000) AS r)
      + (SELECT count(*) FROM (
        SELECT 1 FROM messages AS m
        WHERE m.queue_id = c.queue_id AND m.receive_count = 0 AND m.visible_at > clock.now
          AND (m.expires_at IS NULL OR m.expires_at > clock.now)
        LIMIT 120000) AS f)
  END::bigint AS hidden
) AS h

-- name: overview
-- params: now, kinds, account_id, region, name, last_account_id, last_region, text, limit, most
-- A page of live queues, channels, topics and logs by account, region and name, from these on to the
-- last region, whose names contain `text` in lower case, with the figures of each. Rows of one name
-- may be on two pages. Hidden messages and deliveries are counted up to `most`, those of FIFO queues
-- in so many groups, so the work does not depend on the depth.
-- A topic counts deliveries to its web hooks. A log has the figures of its slowest group, of the
-- first groups that have `most` partitions together; total is NULL without one. Dead letters are all
-- in the dead-letter queue or logs; NULL: there is none.
WITH clock AS MATERIALIZED (
  SELECT coalesce($1::timestamptz, present()) AS now
), chosen AS MATERIALIZED (
  SELECT f.* FROM (
    (SELECT CASE WHEN q.has_priorities THEN 'channel' ELSE 'queue' END AS kind, q.queue_id AS id,
       q.account_id, q.region, q.queue_name AS name, q.created_at,
       q.paused_at IS NOT NULL AS is_paused, q.is_fifo, q.dead_letter_arn,
       coalesce(q.attributes ->> 'DelaySeconds', '0') <> '0' AS delays
     FROM queues AS q
     WHERE q.deleted_at IS NULL AND (q.account_id, q.region, q.queue_name) >= ($3, $4, $5)
       AND (q.account_id, q.region) <= ($6, $7) AND position($8 IN lower(q.queue_name)) > 0
       AND CASE WHEN q.has_priorities THEN 'channel' ELSE 'queue' END = ANY($2::text[])
     ORDER BY q.account_id, q.region, q.queue_name LIMIT $9::int)
    UNION ALL (
     SELECT 'topic', t.topic_id, t.account_id, t.region, t.topic_name, t.created_at,
       t.paused_at IS NOT NULL, t.is_fifo, NULL, false
     FROM topics AS t
     WHERE (t.account_id, t.region, t.topic_name) >= ($3, $4, $5)
       AND (t.account_id, t.region) <= ($6, $7) AND position($8 IN lower(t.topic_name)) > 0
       AND 'topic' = ANY($2::text[])
     ORDER BY t.account_id, t.region, t.topic_name LIMIT $9::int)
    UNION ALL (
     SELECT 'log', l.log_id, l.account_id, l.region, l.log_name, l.created_at, false, false, NULL, false
     FROM logs AS l
     WHERE l.deleted_at IS NULL AND (l.account_id, l.region, l.log_name) >= ($3, $4, $5)
       AND (l.account_id, l.region) <= ($6, $7) AND position($8 IN lower(l.log_name)) > 0
       AND 'log' = ANY($2::text[])
     ORDER BY l.account_id, l.region, l.log_name LIMIT $9::int)) AS f
  ORDER BY f.account_id, f.region, f.name, f.kind LIMIT $9::int
), exhausted AS MATERIALIZED (
  SELECT e.account_id, e.region, e.topic_name, count(*) AS number
  FROM (
    SELECT d.account_id, d.region, d.topic_name FROM deliveries AS d
    WHERE d.state = 'exhausted' AND (d.account_id, d.region) >= ($3, $4)
      AND (d.account_id, d.region) <= ($6, $7) AND 'topic' = ANY($2::text[])
    ORDER BY d.account_id, d.region, d.delivery_id LIMIT $10::int) AS e
  GROUP BY e.account_id, e.region, e.topic_name
), groups AS MATERIALIZED (
  SELECT g.group_id, c.id AS log_id, c.account_id, c.region,
    coalesce(g.settings ->> 'dead_letter_log', left(c.name, 76) || '_dlq') AS dead_name,
    sum(l.next_partition) OVER (ORDER BY g.group_id) - l.next_partition AS before
  FROM chosen AS c JOIN logs AS l ON l.log_id = c.id JOIN log_groups AS g ON g.log_id = c.id
  WHERE c.kind = 'log'
), figures AS (
  SELECT c.kind, c.id,
    CASE WHEN h.in_flight IS NULL THEN 0 ELSE t.total - (SELECT count(*) FROM messages AS m
      WHERE m.queue_id = c.id AND m.expires_at <= clock.now) END AS total,
    t.arrived, h.in_flight, h.delayed, h.oldest_at,
    (SELECT (SELECT coalesce(sum(d.delta), 0)::bigint FROM queue_deltas AS d
             WHERE d.queue_id = k.queue_id)
     FROM queues AS k
     WHERE k.account_id = split_part(c.dead_letter_arn, ':', 5)
       AND k.region = split_part(c.dead_letter_arn, ':', 4)
       AND k.queue_name = split_part(c.dead_letter_arn, ':', 6) AND k.deleted_at IS NULL) AS dead,
    NULL::bigint AS readers
  FROM clock, chosen AS c, LATERAL (
    SELECT coalesce(sum(d.delta), 0)::bigint AS total,
      coalesce(sum(coalesce(d.arrived, greatest(d.delta, 0))), 0)::bigint AS arrived
    FROM queue_deltas AS d WHERE d.queue_id = c.id
  ) AS t LEFT JOIN LATERAL (
    SELECT
      (SELECT count(*) FROM (
        SELECT 1 FROM messages AS m
        WHERE m.queue_id = c.id AND m.receive_count > 0 AND m.visible_at > clock.now
          AND (m.expires_at IS NULL OR m.expires_at > clock.now) LIMIT $10::int) AS r) AS in_flight,
      (SELECT count(*) FROM (
        SELECT 1 FROM messages AS m
        WHERE m.queue_id = c.id AND m.receive_count = 0 AND m.visible_at > clock.now
          AND (m.expires_at IS NULL OR m.expires_at > clock.now) LIMIT $10::int) AS f) AS delayed,
      (SELECT m.sent_at FROM messages AS m
       WHERE m.queue_id = c.id AND (m.expires_at IS NULL OR m.expires_at > clock.now)
       ORDER BY m.sequence LIMIT 1) AS oldest_at
    WHERE NOT c.is_fifo
    UNION ALL SELECT
      (SELECT count(*) FROM (
        SELECT g.d_until FROM fifo_groups AS g
        WHERE g.queue_id = c.id AND g.ready_at > clock.now LIMIT $10::int) AS g,
        unnest(g.d_until) AS u (until) WHERE u.until > clock.now),
      (SELECT count(*) FROM (
        SELECT 1 FROM fifo_groups AS g JOIN fifo_messages AS m
          ON m.queue_id = g.queue_id AND m.group_id = g.group_id AND m.sequence > g.d_last
        WHERE c.delays AND g.queue_id = c.id AND g.ready_at > '-infinity'
          AND m.visible_at > clock.now LIMIT $10::int) AS f),
      (SELECT min(first.sent_at) FROM (
        SELECT g.group_id FROM fifo_groups AS g
        WHERE g.queue_id = c.id AND g.ready_at > '-infinity'
        ORDER BY g.ready_at LIMIT 100) AS g, LATERAL (
        SELECT m.sent_at FROM fifo_messages AS m
        WHERE m.queue_id = c.id AND m.group_id = g.group_id
        ORDER BY m.sequence LIMIT 1) AS first)
    WHERE c.is_fifo
  ) AS h ON t.total > 0
  WHERE c.kind IN ('channel', 'queue')
  UNION ALL
  SELECT c.kind, c.id, p.total, NULL, p.in_flight, p.delayed, p.oldest_at,
    coalesce((SELECT e.number FROM exhausted AS e
              WHERE e.account_id = c.account_id AND e.region = c.region AND e.topic_name = c.name), 0),
    (SELECT count(*) FROM (
      SELECT 1 FROM subscriptions AS s WHERE s.topic_id = c.id LIMIT $10::int) AS s)
  FROM clock, chosen AS c, LATERAL (
    SELECT count(*) AS total, count(*) FILTER (WHERE n.is_leased AND n.due_at > clock.now) AS in_flight,
      count(*) FILTER (WHERE NOT n.is_leased AND n.due_at > clock.now) AS delayed,
      min(n.created_at) AS oldest_at
    FROM (
      SELECT d.is_leased, d.due_at, d.created_at FROM subscriptions AS s, LATERAL (
        SELECT p.is_leased, p.due_at, p.created_at FROM deliveries AS p
        WHERE p.state = 'pending' AND p.subscription_id = s.subscription_id
        ORDER BY p.due_at LIMIT $10::int) AS d
      WHERE s.topic_id = c.id AND s.protocol IN ('http', 'https') LIMIT $10::int) AS n) AS p
  WHERE c.kind = 'topic'
  UNION ALL
  SELECT c.kind, c.id, s.lag,
    (SELECT coalesce(sum(q.next_offset), 0)::bigint FROM log_partitions AS q
     WHERE q.log_id = c.id AND NOT q.is_removed),
    s.in_flight, 0, s.oldest_at,
    (SELECT sum(q.next_offset - q.start_offset - q.gap_count)::bigint
     FROM (SELECT DISTINCT g.account_id, g.region, g.dead_name FROM groups AS g
           WHERE g.log_id = c.id) AS g
     JOIN logs AS k ON k.account_id = g.account_id AND k.region = g.region
       AND k.log_name = g.dead_name AND k.deleted_at IS NULL
     JOIN log_partitions AS q ON q.log_id = k.log_id AND NOT q.is_removed),
    (SELECT count(*) FROM log_groups AS g JOIN log_subscribers AS o ON o.group_id = g.group_id
     WHERE g.log_id = c.id AND o.live_until > clock.now)
  FROM clock, chosen AS c LEFT JOIN LATERAL (
    SELECT sum(q.next_offset - 1 - w.watermark)::bigint AS lag, sum(w.in_flight)::bigint AS in_flight,
      min(oldest.published_at) AS oldest_at
    FROM groups AS g
    JOIN log_partitions AS q ON q.log_id = g.log_id AND NOT q.is_removed
    LEFT JOIN log_positions AS p ON p.group_id = g.group_id AND p.partition_id = q.partition_id
    CROSS JOIN LATERAL (
      SELECT greatest(p.watermark, q.start_offset - 1) AS watermark,
        (SELECT coalesce(sum(p.spans[i]), 0) FROM generate_series(2, cardinality(p.spans), 4) AS i
         WHERE p.spans[i + 3] > 0 AND p.spans[i + 1] > date_part('epoch', clock.now) * 1000
        ) AS in_flight) AS w
    LEFT JOIN LATERAL (
      SELECT r.published_at FROM log_records AS r
      WHERE r.partition_id = q.partition_id AND r.record_offset > w.watermark
      ORDER BY r.record_offset LIMIT 1) AS oldest ON q.next_offset - 1 > w.watermark
    WHERE g.log_id = c.id AND g.before < $10::int
    GROUP BY g.group_id ORDER BY lag DESC LIMIT 1) AS s ON true
  WHERE c.kind = 'log'
)
SELECT c.kind, c.id, c.account_id, c.region, c.name, c.created_at, c.is_paused, f.total, f.arrived,
  coalesce(f.in_flight, 0) AS in_flight, coalesce(f.delayed, 0) AS delayed, f.oldest_at, f.dead,
  f.readers, clock.now
FROM clock, chosen AS c JOIN figures AS f ON f.kind = c.kind AND f.id = c.id
ORDER BY c.account_id, c.region, c.name, c.kind

-- name: paused
-- params: most
-- Paused resources by kind, account, region and name; for a subscription the end of its ARN.
(SELECT 'queue', q.account_id, q.region, q.queue_name FROM queues AS q
 WHERE q.paused_at IS NOT NULL AND q.deleted_at IS NULL ORDER BY q.queue_id LIMIT $1)
UNION ALL
(SELECT 'topic', t.account_id, t.region, t.topic_name FROM topics AS t
 WHERE t.paused_at IS NOT NULL ORDER BY t.topic_id LIMIT $1)
UNION ALL
(SELECT 'subscription', t.account_id, s.region, t.topic_name || ':' || s.subscription_id
 FROM subscriptions AS s JOIN topics AS t ON t.topic_id = s.topic_id
 WHERE s.paused_at IS NOT NULL ORDER BY s.subscription_id LIMIT $1)

-- name: titled_depths
-- params: now, most
-- For queues with titles and their dead-letter queues: messages, messages in flight, and the age of
-- the oldest. A requeued message keeps its number but is new, so the first few are examined.
WITH clock AS MATERIALIZED (
  SELECT coalesce($1::timestamptz, present()) AS now
), chosen AS MATERIALIZED (
  SELECT q.queue_id, q.account_id, q.region, q.queue_name FROM queues AS q
  WHERE q.deleted_at IS NULL AND NOT q.is_fifo AND (q.title IS NOT NULL OR (
    SELECT p.title FROM queues AS p WHERE p.queue_id = q.parent_id) IS NOT NULL)
  ORDER BY q.queue_id LIMIT $2
)
SELECT c.account_id, c.region, c.queue_name,
  greatest((SELECT coalesce(sum(d.delta), 0) FROM queue_deltas AS d
            WHERE d.queue_id = c.queue_id)
    - (SELECT count(*) FROM messages AS m
       WHERE m.queue_id = c.queue_id AND m.expires_at <= clock.now), 0)::bigint AS total,
  (SELECT count(*) FROM (
    SELECT 1 FROM messages AS m
    WHERE m.queue_id = c.queue_id AND m.receive_count > 0 AND m.visible_at > clock.now
      AND (m.expires_at IS NULL OR m.expires_at > clock.now)
    LIMIT 120000) AS r) AS in_flight,
  coalesce(date_part('epoch', clock.now - (SELECT min(o.sent_at) FROM (
    SELECT m.sent_at FROM messages AS m
    WHERE m.queue_id = c.queue_id AND (m.expires_at IS NULL OR m.expires_at > clock.now)
    ORDER BY m.sequence LIMIT 10) AS o)), 0) AS oldest_seconds
FROM clock, chosen AS c

-- name: oldest_by_priority
-- params: now, most
-- For the oldest live queues with priorities, each priority with a receivable message: the age of
-- the first message in receive order. Two probes for each, and a short scan of messages sent before
-- the queue had priorities.
WITH clock AS MATERIALIZED (
  SELECT coalesce($1::timestamptz, present()) AS now
), chosen AS MATERIALIZED (
  SELECT q.queue_id, q.account_id, q.region, q.queue_name FROM queues AS q
  WHERE q.deleted_at IS NULL AND q.has_priorities ORDER BY q.queue_id LIMIT $2
)
SELECT c.account_id, c.region, c.queue_name, level.priority,
  date_part('epoch', clock.now - oldest.sent_at) AS age_seconds
FROM clock, chosen AS c, unnest('{10,9,8,7,6,5,4,3,2,1,0}'::smallint[]) AS level (priority),
LATERAL (
  SELECT least(
    (SELECT m.sent_at FROM messages AS m
     WHERE m.queue_id = c.queue_id AND m.priority = level.priority
       AND least(m.receive_count, 1) = 1 AND m.visible_at <= clock.now
       AND coalesce(m.expires_at, 'infinity') > clock.now
     ORDER BY m.visible_at LIMIT 1),
    (SELECT m.sent_at FROM messages AS m
     WHERE m.queue_id = c.queue_id AND m.priority = level.priority
       AND least(m.receive_count, 1) = 0 AND m.visible_at <= clock.now
       AND coalesce(m.expires_at, 'infinity') > clock.now
     ORDER BY m.visible_at LIMIT 1),
    (SELECT w.sent_at FROM (
       SELECT m.sent_at, m.priority FROM messages AS m
       WHERE level.priority = 0 AND m.queue_id = c.queue_id AND m.receive_count = 0
         AND m.visible_at <= clock.now
       ORDER BY m.visible_at LIMIT 100) AS w
     WHERE w.priority IS NULL LIMIT 1)) AS sent_at
) AS oldest
WHERE oldest.sent_at IS NOT NULL

-- name: live
-- params: queue_ids
-- Returns the live queues. OFFSET keeps the partial index of live names out: it would be read from
-- end to end.
SELECT q.queue_id
FROM (SELECT queue_id, deleted_at FROM queues WHERE queue_id = ANY($1::int[]) OFFSET 0) AS q
WHERE q.deleted_at IS NULL

-- name: live_topics
-- params: account_ids, regions, names
-- Returns the existing topics. OFFSET keeps the planner to one probe for each.
SELECT i.account_id, i.region, i.topic_name
FROM unnest($1::text[], $2::text[], $3::text[]) AS i (account_id, region, topic_name),
  LATERAL (SELECT 1 FROM topics AS t
           WHERE t.account_id = i.account_id AND t.region = i.region
             AND t.topic_name = i.topic_name AND NOT t.is_pattern OFFSET 0) AS k

-- name: standard
-- params: now, queue_id
-- Send times of the first and the last message in send order: two probes of the key, past expired
-- messages not yet removed.
SELECT
  (SELECT m.sent_at FROM messages AS m
   WHERE m.queue_id = $2::int AND (m.expires_at IS NULL OR m.expires_at > clock.now)
   ORDER BY m.sequence LIMIT 1) AS oldest_at,
  (SELECT m.sent_at FROM messages AS m
   WHERE m.queue_id = $2::int AND (m.expires_at IS NULL OR m.expires_at > clock.now)
   ORDER BY m.sequence DESC LIMIT 1) AS newest_at,
  clock.now
FROM (SELECT coalesce($1::timestamptz, present()) AS now) AS clock

-- name: fifo
-- params: now, queue_id, most_groups
-- As `standard` over the groups, whose messages are ordered: two probes of each. Of more than
-- `most_groups` groups, those that have been ready the longest.
SELECT min(first.sent_at) AS oldest_at, max(last.sent_at) AS newest_at, coalesce($1::timestamptz, present()) AS now
FROM (
  SELECT g.queue_id, g.group_id FROM fifo_groups AS g
  WHERE g.queue_id = $2::int AND g.ready_at > '-infinity'
  ORDER BY g.ready_at LIMIT $3::int) AS g,
LATERAL (
  SELECT m.sent_at FROM fifo_messages AS m
  WHERE m.queue_id = g.queue_id AND m.group_id = g.group_id
  ORDER BY m.sequence LIMIT 1) AS first,
LATERAL (
  SELECT m.sent_at FROM fifo_messages AS m
  WHERE m.queue_id = g.queue_id AND m.group_id = g.group_id
  ORDER BY m.sequence DESC LIMIT 1) AS last

-- name: priority_depths
-- params: now, queue_id, most
-- For each priority, most urgent first: receivable messages, counted up to `most`, and the send
-- time of the next one; NULL: none.
SELECT level.priority,
  (SELECT count(*) FROM (
    SELECT 1 FROM messages AS m
    WHERE m.queue_id = $2::int AND m.priority = level.priority
      AND least(m.receive_count, 1) = 1 AND m.visible_at <= clock.now
      AND coalesce(m.expires_at, 'infinity') > clock.now
    LIMIT $3::int) AS r)
  + (SELECT count(*) FROM (
    SELECT 1 FROM messages AS m
    WHERE m.queue_id = $2::int AND m.priority = level.priority
      AND least(m.receive_count, 1) = 0 AND m.visible_at <= clock.now
      AND coalesce(m.expires_at, 'infinity') > clock.now
    LIMIT $3::int) AS f) AS visible,
  least(
    (SELECT m.sent_at FROM messages AS m
     WHERE m.queue_id = $2::int AND m.priority = level.priority
       AND least(m.receive_count, 1) = 1 AND m.visible_at <= clock.now
       AND coalesce(m.expires_at, 'infinity') > clock.now
     ORDER BY m.visible_at LIMIT 1),
    (SELECT m.sent_at FROM messages AS m
     WHERE m.queue_id = $2::int AND m.priority = level.priority
       AND least(m.receive_count, 1) = 0 AND m.visible_at <= clock.now
       AND coalesce(m.expires_at, 'infinity') > clock.now
     ORDER BY m.visible_at LIMIT 1)) AS oldest_at,
  clock.now
FROM (SELECT coalesce($1::timestamptz, present()) AS now) AS clock,
  unnest('{10,9,8,7,6,5,4,3,2,1,0}'::smallint[]) AS level (priority)

-- name: oldest_ages
-- params: now, most, queue_ids, marks
-- For every queue that holds messages the age of the oldest visible one, of the `most` oldest: of a
-- standard queue the first message never received and the first ten received before, of a FIFO queue
-- the heads of five groups. No visible message lies left of a mark. MATERIALIZED: the probes would
-- run three times.
WITH clock AS MATERIALIZED (
  SELECT coalesce($1::timestamptz, present()) AS now
), marks AS MATERIALIZED (
  SELECT m.queue_id, m.mark FROM unnest($3::int[], $4::timestamptz[]) AS m (queue_id, mark)
), holding AS MATERIALIZED (
  SELECT d.queue_id FROM queue_deltas AS d GROUP BY d.queue_id HAVING sum(d.delta) > 0
), oldest AS MATERIALIZED (
  SELECT q.account_id, q.region, q.queue_name, CASE WHEN q.is_fifo THEN (
    SELECT min(m.sent_at) FROM (
      SELECT g.queue_id, g.group_id FROM fifo_groups AS g
      WHERE g.queue_id = q.queue_id AND g.ready_at > '-infinity' AND g.ready_at <= clock.now
      ORDER BY g.ready_at LIMIT 5) AS g,
    LATERAL (
      SELECT f.sent_at FROM fifo_messages AS f
      WHERE f.queue_id = g.queue_id AND f.group_id = g.group_id
      ORDER BY f.sequence LIMIT 1) AS m)
  ELSE least(
    (SELECT m.sent_at FROM messages AS m
     WHERE m.queue_id = q.queue_id AND m.receive_count = 0 AND m.visible_at <= clock.now
       AND m.visible_at >= coalesce(k.mark, '-infinity')
       AND (m.expires_at IS NULL OR m.expires_at > clock.now)
     ORDER BY m.visible_at LIMIT 1),
    (SELECT min(r.sent_at) FROM (
      SELECT m.sent_at FROM messages AS m
      WHERE m.queue_id = q.queue_id AND m.receive_count > 0 AND m.visible_at <= clock.now
        AND m.visible_at >= coalesce(k.mark, '-infinity')
        AND (m.expires_at IS NULL OR m.expires_at > clock.now)
      ORDER BY m.visible_at LIMIT 10) AS r))
  END AS sent_at
  FROM clock, holding AS h JOIN queues AS q ON q.queue_id = h.queue_id AND q.deleted_at IS NULL
  LEFT JOIN marks AS k ON k.queue_id = q.queue_id
)
SELECT o.account_id, o.region, o.queue_name,
  greatest(date_part('epoch', clock.now - o.sent_at), 0) AS age_seconds
FROM clock, oldest AS o WHERE o.sent_at IS NOT NULL
ORDER BY o.sent_at LIMIT $2
