-- Browsing: read messages in place. Nothing is locked.
-- A page follows the primary key: by number on a standard queue, by group and number on a FIFO
-- queue, which has no other index. It examines at most `looked_at` messages and stops after `limit`
-- + 1 matches. Bodies of returned messages are fetched by ctid: within the statement's snapshot a
-- row stays in place. There is always one row; its first two columns are the position to continue
-- behind; the number is NULL at the end.
-- as_of is a number of the sequence that numbers sent messages. Messages present at its reading
-- have a number up to it, because numbers are drawn before commits. Later messages have higher
-- numbers.

-- name: last_standard
-- params:
-- The highest number drawn so far; 0 if none (last_value is 1 then, as is the first number).
SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM message_sequence

-- name: last_fifo
-- params:
-- As `last_standard` for FIFO queues, which have a sequence of their own.
SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM fifo_sequence

-- name: standard_page
-- params: now, queue_id, retention, after_sequence, until_sequence, as_of, group_id, sent_since_ms, sent_until_ms, min_receives, max_receives, state, message_ids, looked_at, limit, most_bytes
-- A dead letter counts as sent on its arrival, though its number gives its position. Expired
-- messages are left out.
WITH clock AS MATERIALIZED (
  SELECT coalesce($1::timestamptz, present()) AS now
), wanted AS MATERIALIZED (
  SELECT x.tid, x.sequence, x.state, row_number() OVER w AS position,
    sum(x.size) OVER w - x.size AS bytes_before
  FROM (
    SELECT l.tid, l.sequence, l.size, l.state
    FROM (
      SELECT m.ctid AS tid, m.sequence, m.arrival, m.sent_at, m.message_id, m.receive_count, m.system,
        m.expires_at, octet_length(m.body) + coalesce(octet_length(m.attributes), 0) AS size,
        floor(date_part('epoch', m.sent_at) * 1000)::bigint AS sent_at_ms,
        CASE WHEN m.visible_at <= (SELECT clock.now FROM clock) THEN 'visible'
          WHEN m.receive_count > 0 THEN 'in_flight' ELSE 'delayed' END AS state
      FROM messages AS m
      WHERE m.queue_id = $2::int AND m.sequence > $4::bigint
        AND m.sequence <= least($5::bigint, $6::bigint)
      ORDER BY m.sequence LIMIT $14::int) AS l
    WHERE coalesce(l.arrival, 0) <= $6::bigint
      AND l.sent_at > (SELECT clock.now FROM clock) - make_interval(secs => $3::int)
      AND (l.expires_at IS NULL OR l.expires_at > (SELECT clock.now FROM clock))
      AND ($7::text IS NULL OR l.system::jsonb ->> 'MessageGroupId' = $7)
      AND ($8::bigint IS NULL OR l.sent_at_ms >= $8) AND ($9::bigint IS NULL OR l.sent_at_ms <= $9)
      AND ($10::int IS NULL OR l.receive_count >= $10)
      AND ($11::int IS NULL OR l.receive_count <= $11)
      AND ($12::text IS NULL OR l.state = $12)
      AND ($13::uuid[] IS NULL OR l.message_id = ANY($13))
    ORDER BY l.sequence LIMIT $15::int + 1) AS x
  WINDOW w AS (ORDER BY x.sequence ROWS UNBOUNDED PRECEDING)
), page AS MATERIALIZED (
  SELECT w.tid, w.sequence, w.state FROM wanted AS w
  WHERE w.position <= $15::int AND w.bytes_before < $16::bigint
), edge AS MATERIALIZED (
  SELECT CASE WHEN (SELECT count(*) FROM wanted) > (SELECT count(*) FROM page)
    THEN (SELECT max(page.sequence) FROM page)
    ELSE (
      SELECT m.sequence FROM messages AS m
      WHERE m.queue_id = $2::int AND m.sequence > $4::bigint
        AND m.sequence <= least($5::bigint, $6::bigint)
      ORDER BY m.sequence OFFSET $14::int - 1 LIMIT 1) END AS next_sequence
)
SELECT ''::text AS next_group_id, edge.next_sequence, r.*
FROM edge LEFT JOIN (
  SELECT
-- include: queues/messages.message
    , p.state, m.visible_at, m.expires_at
  FROM page AS p, LATERAL (
    SELECT x.*, NULL::text AS group_id, NULL::text AS deduplication_id
    FROM messages AS x WHERE x.ctid = p.tid OFFSET 0) AS m) AS r ON true
ORDER BY r.sequence

-- name: fifo_page
-- params: now, queue_id, retention, after_group_id, after_sequence, until_group_id, until_sequence, as_of, sent_since_ms, sent_until_ms, min_receives, max_receives, state, message_ids, looked_at, limit, most_bytes
-- The group's row has the receives of a message. Messages that the group has passed are deleted.
WITH clock AS MATERIALIZED (
  SELECT coalesce($1::timestamptz, present()) AS now
), wanted AS MATERIALIZED (
  SELECT x.*, row_number() OVER w AS position, sum(x.size) OVER w - x.size AS bytes_before
  FROM (
    SELECT s.tid, s.group_id, s.sequence, s.size, s.state, s.visible_at, s.receive_count,
      s.first_received_at
    FROM (
      SELECT l.*, coalesce(g.d_rc[g.place], l.prior_count) AS receive_count,
        g.d_first[g.place] AS first_received_at, coalesce(g.d_until[g.place], l.sent_visible_at) AS visible_at,
        CASE WHEN coalesce(g.d_until[g.place], l.sent_visible_at) <= (SELECT clock.now FROM clock)
          THEN 'visible' WHEN g.place IS NOT NULL THEN 'in_flight' ELSE 'delayed' END AS state,
        l.sequence > coalesce(g.d_last, 0) OR g.place IS NOT NULL AS is_there
      FROM (
        SELECT m.ctid AS tid, m.group_id, m.sequence, m.sent_at, m.message_id, m.prior_count,
          m.visible_at AS sent_visible_at,
          octet_length(m.body) + coalesce(octet_length(m.attributes), 0) AS size,
          floor(date_part('epoch', m.sent_at) * 1000)::bigint AS sent_at_ms, m.expires_at
        FROM fifo_messages AS m
        WHERE m.queue_id = $2::int AND (m.group_id, m.sequence) > ($4::text, $5::bigint)
          AND (m.group_id, m.sequence) <= ($6::text, $7::bigint)
        ORDER BY m.group_id, m.sequence LIMIT $15::int) AS l
      LEFT JOIN LATERAL (
        SELECT f.d_last, f.d_rc, f.d_until, f.d_first, array_position(f.d_seq, l.sequence) AS place
        FROM fifo_groups AS f WHERE f.queue_id = $2::int AND f.group_id = l.group_id
        OFFSET 0) AS g ON true) AS s
    WHERE s.is_there AND s.sequence <= $8::bigint
      AND s.sent_at > (SELECT clock.now FROM clock) - make_interval(secs => $3::int)
      AND (s.state = 'in_flight' OR (s.expires_at > (SELECT clock.now FROM clock)) IS NOT FALSE)
      AND ($9::bigint IS NULL OR s.sent_at_ms >= $9) AND ($10::bigint IS NULL OR s.sent_at_ms <= $10)
      AND ($11::int IS NULL OR s.receive_count >= $11)
      AND ($12::int IS NULL OR s.receive_count <= $12)
      AND ($13::text IS NULL OR s.state = $13)
      AND ($14::uuid[] IS NULL OR s.message_id = ANY($14))
    ORDER BY s.group_id, s.sequence LIMIT $16::int + 1) AS x
  WINDOW w AS (ORDER BY x.group_id, x.sequence ROWS UNBOUNDED PRECEDING)
), page AS MATERIALIZED (
  SELECT w.* FROM wanted AS w WHERE w.position <= $16::int AND w.bytes_before < $17::bigint
), is_cut AS (
  SELECT (SELECT count(*) FROM wanted) > (SELECT count(*) FROM page) AS is_cut
), edge AS MATERIALIZED (
  SELECT e.group_id AS next_group_id, e.sequence AS next_sequence
  FROM (SELECT 1) AS always LEFT JOIN (
    (SELECT p.group_id, p.sequence FROM page AS p WHERE (SELECT is_cut FROM is_cut)
     ORDER BY p.position DESC LIMIT 1)
    UNION ALL
    (SELECT m.group_id, m.sequence FROM fifo_messages AS m
     WHERE NOT (SELECT is_cut FROM is_cut)
       AND m.queue_id = $2::int AND (m.group_id, m.sequence) > ($4::text, $5::bigint)
       AND (m.group_id, m.sequence) <= ($6::text, $7::bigint)
     ORDER BY m.group_id, m.sequence OFFSET $15::int - 1 LIMIT 1)) AS e ON true
)
SELECT edge.next_group_id, edge.next_sequence, r.*
FROM edge LEFT JOIN (
  SELECT
-- include: queues/messages.message
    , m.state, m.visible_at, m.expires_at
  FROM (
    SELECT x.*, p.state, p.receive_count, p.first_received_at, NULL::bytea AS body_md5,
      NULL::smallint AS priority
    FROM page AS p, LATERAL (
      SELECT f.queue_id, f.group_id, f.sequence, f.message_id, f.body, f.sender_id, f.attributes,
        f.system, f.sent_at, f.deduplication_id, f.expires_at, p.visible_at
      FROM fifo_messages AS f WHERE f.ctid = p.tid OFFSET 0) AS x) AS m) AS r ON true
ORDER BY r.group_id, r.sequence

-- name: standard_ends
-- params: queue_id, as_of, parts, most
-- Returns the last numbers of at most `parts` equal parts of the first `most` messages, and whether
-- these are all messages.
WITH looked AS MATERIALIZED (
  SELECT m.sequence FROM messages AS m
  WHERE m.queue_id = $1::int AND m.sequence <= $2::bigint
  ORDER BY m.sequence LIMIT $4::int + 1
)
SELECT ''::text AS group_id, max(p.sequence) AS sequence,
  (SELECT count(*) FROM looked) <= $4::int AS is_whole
FROM (SELECT l.sequence, ntile($3::int) OVER (ORDER BY l.sequence) AS part FROM looked AS l) AS p
GROUP BY p.part ORDER BY sequence

-- name: fifo_ends
-- params: queue_id, as_of, parts, most
-- As `standard_ends`, by group and number.
WITH looked AS MATERIALIZED (
  SELECT m.group_id, m.sequence FROM fifo_messages AS m
  WHERE m.queue_id = $1::int
  ORDER BY m.group_id, m.sequence LIMIT $4::int + 1
)
SELECT DISTINCT ON (p.part) p.group_id, p.sequence,
  (SELECT count(*) FROM looked) <= $4::int AS is_whole
FROM (
  SELECT l.group_id, l.sequence, ntile($3::int) OVER (ORDER BY l.group_id, l.sequence) AS part
  FROM looked AS l WHERE l.sequence <= $2::bigint) AS p
ORDER BY p.part, p.group_id DESC, p.sequence DESC

-- name: standard_sample
-- params: queue_id, as_of, parts, pages
-- As `standard_ends` for a sample: the queue's messages on about `pages` pages of the table.
SELECT ''::text AS group_id, max(p.sequence) AS sequence, true AS is_whole
FROM (
  SELECT m.sequence, ntile($3::int) OVER (ORDER BY m.sequence) AS part
  FROM messages AS m TABLESAMPLE SYSTEM (least(100,
    $4::int * 100.0 * current_setting('block_size')::int / greatest(pg_relation_size('messages'), 1)))
  WHERE m.queue_id = $1::int AND m.sequence <= $2::bigint) AS p
GROUP BY p.part ORDER BY sequence

-- name: fifo_sample
-- params: queue_id, as_of, parts, pages
-- As `standard_sample` for a FIFO queue, by its primary key: group, then number. max() takes no
-- pairs; DISTINCT ON takes the last position of each part.
SELECT DISTINCT ON (p.part) p.group_id, p.sequence, true AS is_whole
FROM (
  SELECT m.group_id, m.sequence, ntile($3::int) OVER (ORDER BY m.group_id, m.sequence) AS part
  FROM fifo_messages AS m TABLESAMPLE SYSTEM (least(100,
    $4::int * 100.0 * current_setting('block_size')::int / greatest(pg_relation_size('fifo_messages'), 1)))
  WHERE m.queue_id = $1::int AND m.sequence <= $2::bigint) AS p
ORDER BY p.part, p.group_id DESC, p.sequence DESC
