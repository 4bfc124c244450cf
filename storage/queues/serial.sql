-- Serial queues: what they do otherwise than FIFO queues, in whose tables their messages lie (fifo.sql
-- says what stands in them). Of a group one message is out: d_seq has one element. It is the head of
-- its group until it is deleted, moved away or ends.
-- Every statement that needs the time takes `now`; NULL means the clock of the database.

-- name: receive
-- params: now, queue_ids, slots, retentions, visibilities_ms, owners
-- One flush of receivers. A receive of n messages has n slots, one message each, so it gets n groups;
-- visibilities and owners (whose receive it is) stand in the order of the queues and, within one, of
-- its slots. Without a timeout a group keeps its place: the next receive gets the same message.
-- Owner 0 names groups that were ready but had nothing to hand out (`refresh` in fifo.sql).
WITH clock AS MATERIALIZED (
  SELECT coalesce($1::timestamptz, present()) AS now
), found AS MATERIALIZED (
  SELECT c.*, CASE WHEN c.tid IS NOT NULL
    THEN q.base + row_number() OVER (PARTITION BY q.queue_id, c.tid IS NULL) ELSE 0 END AS slot
  FROM clock, (
    SELECT i.queue_id, i.slots, i.retention,
      (sum(i.slots) OVER (ORDER BY i.place) - i.slots)::int AS base
    FROM unnest($2::int[], $3::int[], $4::int[])
      WITH ORDINALITY AS i (queue_id, slots, retention, place)) AS q, LATERAL (
    SELECT g.*, m.tid, m.sequence, m.prior_count
    FROM (
      SELECT f.queue_id, f.group_id, f.ready_at, f.head_seq, f.d_last, f.d_seq, f.d_rc, f.d_until,
        f.d_first
      FROM fifo_groups AS f
      WHERE f.queue_id = q.queue_id AND f.ready_at > '-infinity' AND f.ready_at <= clock.now
      ORDER BY f.ready_at LIMIT q.slots FOR NO KEY UPDATE SKIP LOCKED) AS g
    LEFT JOIN LATERAL (
      SELECT w.tid, w.sequence, w.prior_count FROM (
        SELECT m.ctid AS tid, m.sequence, m.visible_at, m.sent_at, m.prior_count, m.expires_at
        FROM fifo_messages AS m
        WHERE m.queue_id = g.queue_id AND m.group_id = g.group_id AND m.sequence >= g.head_seq
          AND (m.sequence > g.d_last OR m.sequence = g.d_seq[1])
        ORDER BY m.sequence LIMIT 1) AS w
      WHERE w.sent_at > clock.now - q.retention * interval '1 second'
        AND (w.expires_at > clock.now) IS NOT FALSE
        AND CASE WHEN w.sequence = g.d_seq[1] THEN g.d_until[1] ELSE w.visible_at END <= clock.now
      ) AS m ON true) AS c
), taken AS MATERIALIZED (
  SELECT x.slot, x.queue_id, x.group_id, x.ready_at, x.tid, x.sequence,
    CASE WHEN x.again = 1 THEN x.d_rc[1] ELSE x.prior_count END + 1 AS rc,
    coalesce(CASE WHEN x.again = 1 THEN x.d_first[1] END, clock.now) AS first,
    clock.now + ($5::bigint[])[x.slot] * interval '1 millisecond' AS until
  FROM clock, (
    SELECT f.*, coalesce(f.sequence = f.d_seq[1], false)::int AS again
    FROM found AS f WHERE f.tid IS NOT NULL) AS x
), leased AS (
  INSERT INTO fifo_groups AS f (queue_id, group_id, ready_at, head_seq, d_last, d_seq, d_rc,
    d_until, d_first)
  SELECT t.queue_id, t.group_id, CASE WHEN t.until > clock.now THEN t.until ELSE t.ready_at END,
    t.sequence, t.sequence, ARRAY[t.sequence], ARRAY[t.rc], ARRAY[t.until], ARRAY[t.first]
  FROM taken AS t, clock
  ON CONFLICT (queue_id, group_id) DO UPDATE
  SET ready_at = excluded.ready_at, head_seq = excluded.head_seq,
      d_last = greatest(f.d_last, excluded.d_last), d_seq = excluded.d_seq || f.d_seq[2:],
      d_rc = excluded.d_rc || f.d_rc[2:], d_until = excluded.d_until || f.d_until[2:],
      d_first = excluded.d_first || f.d_first[2:]
)
SELECT ($6::int[])[t.slot], t.slot, m.queue_id, m.sequence, m.message_id, t.rc, m.body, m.sender_id,
  m.attributes, m.system,
  floor(date_part('epoch', m.sent_at) * 1000)::bigint AS sent_at_ms,
  floor(date_part('epoch', t.first) * 1000)::bigint AS first_received_at_ms,
  m.group_id, m.deduplication_id,
  round(date_part('epoch', m.sent_at) * 1000000)::bigint AS sent_at_us
FROM taken AS t, LATERAL (
  SELECT x.queue_id, x.sequence, x.message_id, x.body, x.sender_id, x.attributes, x.system,
    x.sent_at, x.group_id, x.deduplication_id
  FROM fifo_messages AS x WHERE x.ctid = t.tid OFFSET 0) AS m
UNION ALL
SELECT 0, 0, x.queue_id, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, x.group_id, NULL, NULL
FROM found AS x WHERE x.tid IS NULL

-- name: find_repeats
-- params: now, queue_id, group_ids, dedup_keys
-- Which of these deduplication keys still count: those whose message is there. dedup_keys is the text
-- of an array.
SELECT k.dedup_key
FROM unnest(($4::text)::uuid[]) AS i (dedup_key), LATERAL (
  SELECT f.dedup_key FROM fifo_dedup AS f
  WHERE f.queue_id = $2::int AND f.dedup_key = i.dedup_key OFFSET 0) AS k
WHERE k.dedup_key <> ALL (serial_free(coalesce($1::timestamptz, present()), ARRAY[$2::int],
  array_fill($2::int, ARRAY[cardinality($3::text[])]), $3::text[], ($4::text)::uuid[]))

-- name: delete
-- params: now, queue_ids, group_ids, sequences, receive_counts
-- As `delete` in fifo.sql: `expired` are those of which somebody else has received the message since.
SELECT done, expired FROM serial_delete($1, $2, $3, $4, $5)

-- name: change_visibility
-- params: now, queue_ids, group_ids, sequences, receive_counts, visibilities_ms
-- As `change_visibility` in fifo.sql, and after the timeout, too, as long as nobody has received the
-- message since. What is shown at once is the first of the queue that was sent then.
WITH l AS MATERIALIZED (
  SELECT f.queue_id, f.group_id, f.head_seq, f.d_seq, f.d_rc, f.d_until,
    i.ss, i.cs, i.vs, i.ps
  FROM (
    SELECT e.queue_id, e.group_id COLLATE "C" AS group_id, array_agg(e.sequence) AS ss,
      array_agg(e.receive_count) AS cs, array_agg(e.visibility_ms) AS vs,
      array_agg(e.position) AS ps
    FROM unnest($2::int[], $3::text[], $4::bigint[], $5::int[], $6::bigint[])
      WITH ORDINALITY AS e (queue_id, group_id, sequence, receive_count, visibility_ms, position)
    GROUP BY 1, 2 ORDER BY 1, 2) AS i, LATERAL (
    SELECT g.queue_id, g.group_id, g.head_seq, g.d_seq, g.d_rc, g.d_until
    FROM fifo_groups AS g
    WHERE g.queue_id = i.queue_id AND g.group_id = i.group_id FOR NO KEY UPDATE) AS f
), clock AS MATERIALIZED (
  SELECT coalesce($1::timestamptz, present()) AS now FROM (SELECT count(*) FROM l) AS c
), n AS MATERIALIZED (
  SELECT l.queue_id, l.group_id, l.head_seq, l.d_until, e.position, e.sequence, e.visibility_ms,
    e.sequence = l.d_seq[1] AND e.receive_count = l.d_rc[1] AS ok
  FROM l, LATERAL unnest(l.ps, l.ss, l.cs, l.vs)
    AS e (position, sequence, receive_count, visibility_ms)
  WHERE e.sequence = ANY(l.d_seq)
), changed AS (
  INSERT INTO fifo_groups (queue_id, group_id, ready_at, head_seq, d_until)
  SELECT DISTINCT ON (n.queue_id, n.group_id) n.queue_id, n.group_id,
    CASE WHEN n.visibility_ms > 0 THEN u.until ELSE least(m.visible_at, clock.now) END,
    n.head_seq, u.until || n.d_until[2:]
  FROM clock, n, LATERAL (
    SELECT clock.now + n.visibility_ms * interval '1 millisecond' AS until) AS u
  LEFT JOIN LATERAL (
    SELECT x.visible_at FROM fifo_messages AS x
    WHERE x.queue_id = n.queue_id AND x.group_id = n.group_id AND x.sequence = n.sequence
    OFFSET 0) AS m ON true
  WHERE n.ok
  ORDER BY n.queue_id, n.group_id, n.position DESC
  ON CONFLICT (queue_id, group_id) DO UPDATE
  SET d_until = excluded.d_until, ready_at = excluded.ready_at
)
SELECT n.position, CASE WHEN n.ok THEN 'ok' ELSE 'expired' END FROM n
