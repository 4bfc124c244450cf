-- FIFO queues. Messages are immutable; the row of their group holds the deliveries and their
-- visibility deadlines (d_seq, d_rc, d_until, d_first: one element for each message delivered and
-- not deleted, at most ten; d_last: the highest number ever delivered). A message up to d_last but
-- not in d_seq is deleted; one above was never delivered. ready_at is the instant from which the
-- head of the group can be delivered: it may be too early, never too late.
-- storage/functions/fifo.sql has the functions, the lock order, and the reason why no statement
-- joins a table.

-- part: delivered
FROM taken AS t, LATERAL (
  SELECT x.queue_id, x.sequence, x.message_id, x.body, x.sender_id, x.attributes, x.system,
    x.sent_at, x.group_id, x.deduplication_id
  FROM fifo_messages AS x WHERE x.ctid = t.tid OFFSET 0) AS m
UNION ALL
SELECT 0, 0, x.queue_id, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, x.group_id, NULL, NULL
FROM found AS x

-- name: send
-- params: now, distinct_ids, queue_ids, message_ids, group_ids, dedup_keys, deduplication_ids, bodies, sender_ids, attributes, systems, delays, ttls
-- One flush of senders, to FIFO and strict FIFO queues. No two rows may share queue and
-- deduplication key. message_ids and dedup_keys are the texts of arrays: the client writes those
-- far faster than arrays of uuid. queue_ids and sender_ids hold one element when it is the same for
-- all; attributes, systems, delays and ttls are NULL where no message has one.
SELECT positions, sequences, originals, sent_at_us
FROM fifo_send_expiring($1, $2, $3, ($4::text)::uuid[], $5, ($6::text)::uuid[], $7, $8, $9, $10, $11, $12,
  $13)

-- name: send_one
-- params: now, queue_id, message_id, group_id, dedup_key, deduplication_id, body, sender_id, attributes, system, delay, ttl
-- As `send` for one message. `sequence` is NULL if its queue is deleted.
SELECT sequence, original, sent_at_us
FROM fifo_send_one($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)

-- name: find_repeats
-- params: now, queue_id, dedup_keys
-- Returns the valid ones of these deduplication keys. dedup_keys is the text of an array. While
-- senders are locked out of the queue, only the deletion of keys changes the result.
SELECT k.dedup_key FROM unnest(($3::text)::uuid[]) AS i (dedup_key), LATERAL (
  SELECT f.dedup_key FROM fifo_dedup AS f
  WHERE f.queue_id = $2::int AND f.dedup_key = i.dedup_key
    AND f.expires_at > coalesce($1::timestamptz, present()) OFFSET 0) AS k

-- name: receive
-- params: now, queue_ids, callers, retentions, visibilities_ms, limit
-- One flush of receivers that all take at most `limit` messages; visibilities are in the order of
-- the queues and, within one, of its callers. Each group goes to one caller, round-robin, the
-- longest ready first. Each group delivers its longest prefix without a message in flight, delayed
-- or past its retention; only rows of groups are written. Caller 0 names groups that were ready but
-- had nothing to deliver (`fifo_refresh`). The locked rows decide, not the older snapshot.
WITH clock AS MATERIALIZED (
  SELECT coalesce($1::timestamptz, present()) AS now
), found AS MATERIALIZED (
  SELECT q.callers, q.base, c.*
  FROM clock, (
    SELECT i.queue_id, i.callers, i.retention,
      (sum(i.callers) OVER (ORDER BY i.place) - i.callers)::int AS base
    FROM unnest($2::int[], $3::int[], $4::int[])
      WITH ORDINALITY AS i (queue_id, callers, retention, place)) AS q, LATERAL (
    -- The limit outside stops the locking inside: a deep group fills a caller alone.
    SELECT g.*, m.k, m.tid, m.sequence, m.place, m.prior_count
    FROM (
      SELECT f.queue_id, f.group_id, f.ready_at, f.head_seq, f.d_last, f.d_seq, f.d_rc, f.d_until,
        f.d_first
      FROM fifo_groups AS f
      WHERE f.queue_id = q.queue_id AND f.ready_at > '-infinity' AND f.ready_at <= clock.now
      ORDER BY f.ready_at LIMIT q.callers * $6::int FOR NO KEY UPDATE SKIP LOCKED) AS g
    LEFT JOIN LATERAL (
      SELECT w.tid, w.sequence, w.place, w.prior_count, row_number() OVER (ORDER BY w.sequence) AS k,
        bool_and(w.sent_at > clock.now - q.retention * interval '1 second'
          AND (w.expires_at > clock.now) IS NOT FALSE
          AND coalesce(g.d_until[w.place], w.visible_at) <= clock.now) OVER (ORDER BY w.sequence) AS ok
      FROM (
        SELECT m.ctid AS tid, m.sequence, m.visible_at, m.sent_at, m.prior_count, m.expires_at,
          array_position(g.d_seq, m.sequence) AS place
        FROM fifo_messages AS m
        WHERE m.queue_id = g.queue_id AND m.group_id = g.group_id AND m.sequence >= g.head_seq
          AND (m.sequence > g.d_last OR m.sequence = ANY(g.d_seq))
        ORDER BY m.sequence LIMIT $6::int) AS w) AS m ON m.ok
    LIMIT q.callers * $6::int) AS c
), taken AS MATERIALIZED (
  SELECT z.*, coalesce(z.d_rc[z.place], z.prior_count) + 1 AS rc,
    coalesce(z.d_first[z.place], clock.now) AS first,
    clock.now + ($5::bigint[])[z.caller] * interval '1 millisecond' AS until
  FROM clock, (
    SELECT y.*, row_number() OVER (PARTITION BY y.caller ORDER BY y.ready_at, y.head_seq, y.k) AS pos
    FROM (
      SELECT x.*, x.base + 1 + ((dense_rank() OVER (
          PARTITION BY x.queue_id ORDER BY x.ready_at, x.head_seq) - 1) % x.callers)::int AS caller
      FROM found AS x WHERE x.k IS NOT NULL) AS y) AS z
  WHERE z.pos <= $6::int
), grouped AS MATERIALIZED (
  SELECT t.queue_id, t.group_id, array_agg(t.sequence ORDER BY t.k) AS ts,
    array_agg(t.rc ORDER BY t.k) AS tr, array_agg(t.until ORDER BY t.k) AS tu,
    array_agg(t.first ORDER BY t.k) AS tf, max(t.sequence) AS last
  FROM taken AS t GROUP BY 1, 2
), leased AS (
  -- Behind `now` by a microsecond even without a timeout: the group goes to the back.
  -- The rest of d_seq follows the messages taken: delivered ones are the first of the group.
  INSERT INTO fifo_groups AS f (queue_id, group_id, ready_at, head_seq, d_last, d_seq, d_rc,
    d_until, d_first)
  SELECT g.queue_id, g.group_id, greatest(g.tu[1], clock.now + interval '1 microsecond'), g.ts[1],
    g.last, g.ts, g.tr, g.tu, g.tf
  FROM grouped AS g, clock
  ON CONFLICT (queue_id, group_id) DO UPDATE
  SET ready_at = excluded.ready_at, head_seq = excluded.head_seq,
      d_last = greatest(f.d_last, excluded.d_last),
      d_seq = excluded.d_seq || f.d_seq[cardinality(excluded.d_seq) + 1:],
      d_rc = excluded.d_rc || f.d_rc[cardinality(excluded.d_seq) + 1:],
      d_until = excluded.d_until || f.d_until[cardinality(excluded.d_seq) + 1:],
      d_first = excluded.d_first || f.d_first[cardinality(excluded.d_seq) + 1:]
)
SELECT t.caller, t.pos, m.queue_id, m.sequence, m.message_id, t.rc, m.body, m.sender_id,
  m.attributes, m.system,
  floor(date_part('epoch', m.sent_at) * 1000)::bigint AS sent_at_ms,
  floor(date_part('epoch', t.first) * 1000)::bigint AS first_received_at_ms,
  m.group_id, m.deduplication_id, NULL::bigint AS sent_at_us
-- include: delivered
WHERE x.k IS NULL

-- name: receive_one
-- params: now, queue_ids, slots, retentions, visibilities_ms, owners
-- As `receive` with one message per group: no ranking or gathering. The head of a group is the
-- first element of d_seq, if it was delivered before. On FIFO queues a slot is a caller that takes
-- one message. On strict FIFO queues a receive of n messages has n slots, so it gets n groups:
-- `owners` assigns slots to receives (NULL on FIFO queues), and without a timeout a group keeps its
-- position, so that the next receive gets the same message. Owner 0 names groups with nothing to
-- deliver. For comes_back, see `come_back` in fifo_lanes.sql.
WITH clock AS MATERIALIZED (
  SELECT coalesce($1::timestamptz, present()) AS now
), found AS MATERIALIZED (
  SELECT c.*, CASE WHEN c.tid IS NOT NULL
    THEN q.base + row_number() OVER (
      PARTITION BY q.queue_id, c.tid IS NULL ORDER BY c.ready_at, c.head_seq) ELSE 0 END AS slot
  FROM clock, (
    SELECT i.queue_id, i.slots, i.retention,
      (sum(i.slots) OVER (ORDER BY i.place) - i.slots)::int AS base
    FROM unnest($2::int[], $3::int[], $4::int[])
      WITH ORDINALITY AS i (queue_id, slots, retention, place)) AS q, LATERAL (
    SELECT g.*, m.tid, m.sequence, m.prior_count
    FROM (
      SELECT f.queue_id, f.group_id, f.ready_at, f.d_seq, f.d_rc, f.d_until, f.d_first, f.head_seq,
        f.d_last
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
    d_until, d_first, comes_back)
  SELECT t.queue_id, t.group_id, CASE WHEN t.until > clock.now THEN t.until
      WHEN $6::int[] IS NULL THEN clock.now + interval '1 microsecond' ELSE t.ready_at END,
    t.sequence, t.sequence, ARRAY[t.sequence], ARRAY[t.rc], ARRAY[t.until], ARRAY[t.first],
    $6::int[] IS NOT NULL AND t.until > clock.now
  FROM taken AS t, clock
  ON CONFLICT (queue_id, group_id) DO UPDATE
  SET ready_at = excluded.ready_at, head_seq = excluded.head_seq,
      d_last = greatest(f.d_last, excluded.d_last), d_seq = excluded.d_seq || f.d_seq[2:],
      d_rc = excluded.d_rc || f.d_rc[2:], d_until = excluded.d_until || f.d_until[2:],
      d_first = excluded.d_first || f.d_first[2:], comes_back = excluded.comes_back
)
SELECT coalesce(($6::int[])[t.slot], t.slot), t.slot, m.queue_id, m.sequence, m.message_id, t.rc,
  m.body, m.sender_id, m.attributes, m.system,
  floor(date_part('epoch', m.sent_at) * 1000)::bigint AS sent_at_ms,
  floor(date_part('epoch', t.first) * 1000)::bigint AS first_received_at_ms,
  m.group_id, m.deduplication_id,
  CASE WHEN $6::int[] IS NOT NULL THEN round(date_part('epoch', m.sent_at) * 1000000)::bigint END
    AS sent_at_us
-- include: delivered
WHERE x.tid IS NULL

-- name: receive_one_of_queue
-- params: now, queue_id, slots, retention, visibility_ms
-- As `receive_one` on one FIFO queue whose callers share one timeout, the common case: slots are
-- row positions, so no numbering by partition, and a message is read once.
WITH clock AS MATERIALIZED (
  SELECT coalesce($1::timestamptz, present()) AS now
), found AS MATERIALIZED (
  SELECT g.group_id, m.*, clock.now, clock.now + $5::bigint * interval '1 millisecond' AS until
  FROM clock, LATERAL (
    SELECT f.group_id, f.d_seq, f.d_rc, f.d_until, f.d_first, f.head_seq, f.d_last
    FROM fifo_groups AS f
    WHERE f.queue_id = $2::int AND f.ready_at > '-infinity' AND f.ready_at <= clock.now
    ORDER BY f.ready_at LIMIT $3::int FOR NO KEY UPDATE SKIP LOCKED) AS g
  LEFT JOIN LATERAL (
    SELECT w.*, CASE WHEN w.again THEN g.d_rc[1] ELSE w.prior_count END + 1 AS rc,
      CASE WHEN w.again THEN g.d_first[1] ELSE clock.now END AS first
    FROM (
      SELECT m.sequence, m.visible_at, m.sent_at, m.prior_count, m.expires_at, m.message_id,
        m.body, m.sender_id, m.attributes, m.system, m.deduplication_id,
        coalesce(m.sequence = g.d_seq[1], false) AS again
      FROM fifo_messages AS m
      WHERE m.queue_id = $2::int AND m.group_id = g.group_id AND m.sequence >= g.head_seq
        AND (m.sequence > g.d_last OR m.sequence = g.d_seq[1])
      ORDER BY m.sequence LIMIT 1) AS w
    WHERE w.sent_at > clock.now - $4::int * interval '1 second'
      AND (w.expires_at > clock.now) IS NOT FALSE
      AND CASE WHEN w.again THEN g.d_until[1] ELSE w.visible_at END <= clock.now
    ) AS m ON true
), leased AS (
  INSERT INTO fifo_groups AS f (queue_id, group_id, ready_at, head_seq, d_last, d_seq, d_rc,
    d_until, d_first)
  SELECT $2::int, t.group_id, greatest(t.until, t.now + interval '1 microsecond'), t.sequence,
    t.sequence, ARRAY[t.sequence], ARRAY[t.rc], ARRAY[t.until], ARRAY[t.first]
  FROM found AS t WHERE t.sequence IS NOT NULL
  ON CONFLICT (queue_id, group_id) DO UPDATE
  SET ready_at = excluded.ready_at, head_seq = excluded.head_seq,
      d_last = greatest(f.d_last, excluded.d_last), d_seq = excluded.d_seq || f.d_seq[2:],
      d_rc = excluded.d_rc || f.d_rc[2:], d_until = excluded.d_until || f.d_until[2:],
      d_first = excluded.d_first || f.d_first[2:]
)
SELECT CASE WHEN m.sequence IS NULL THEN 0 ELSE row_number() OVER () END, 1, $2::int, m.sequence,
  m.message_id, m.rc, m.body, m.sender_id, m.attributes, m.system,
  floor(date_part('epoch', m.sent_at) * 1000)::bigint AS sent_at_ms,
  floor(date_part('epoch', m.first) * 1000)::bigint AS first_received_at_ms,
  m.group_id, m.deduplication_id, NULL::bigint AS sent_at_us
FROM found AS m

-- name: ready_queues
-- params: now, queue_ids
-- Returns the queues with a ready group, locked or not.
SELECT q.queue_id
FROM (SELECT coalesce($1::timestamptz, present()) AS now) AS clock,
  unnest($2::int[]) AS q (queue_id)
WHERE EXISTS (
  SELECT 1 FROM fifo_groups AS f
  WHERE f.queue_id = q.queue_id AND f.ready_at > '-infinity' AND f.ready_at <= clock.now
  OFFSET 0)

-- name: refresh
-- params: now, queue_id, group_ids, retention
-- Reconciles groups that a receive found ready but with nothing to deliver: expires messages and
-- updates the group rows, so that the next receive skips them. Several statements with snapshots of
-- their own, hence a function; groups locked by others are left to them.
SELECT fifo_refresh($1, $2, $3, $4)

-- name: delete
-- params: now, queue_ids, group_ids, sequences, receive_counts, is_serial
-- Deletes by receipt, for a whole flush, under the locks of the groups. Returns the positions (from
-- 1) that are done, and the expired ones, which stay: their timeout had ended, or on strict FIFO
-- queues another receiver has them. A function: the time is taken after the locks, and a statement
-- that sees the commits of senders deletes groups empty by then.
SELECT done, expired FROM delete_in_groups($1, $2, $3, $4, $5, $6)

-- name: delete_one_of_each_group
-- params: now, queue_id, group_ids, sequences, receive_counts
-- As `delete` on one FIFO queue, one message of a group, sorted by group. `done` NULL: all.
SELECT done, expired FROM delete_one_of_each_group($1, $2, $3, $4, $5)

-- name: delete_one
-- params: now, queue_id, group_id, sequence, receive_count
-- As `delete` for one message.
SELECT done, expired FROM delete_one_in_group($1, $2, $3, $4, $5)

-- name: delete_and_archive
-- params: now, queue_ids, group_ids, sequences, receive_counts, is_serial
-- As `delete`, and copies deleted messages of archiving queues to their archives, by the queue's
-- row in the snapshot of the statement. That snapshot still has the rows that the function deletes,
-- because it runs statements of its own: the immutable message and its first receive. Both were
-- committed before the receiver got the handle.
WITH gone AS MATERIALIZED (
  SELECT f.done, f.expired FROM delete_in_groups($1, $2, $3, $4, $5, $6) AS f
), archiving AS MATERIALIZED (
  SELECT q.queue_id
  FROM (SELECT queue_id, is_archiving FROM queues WHERE queue_id = ANY($2::int[]) OFFSET 0) AS q
  WHERE q.is_archiving
), archived AS (
  INSERT INTO message_archive (queue_id, sequence, archived_at, sent_at, first_received_at,
    receive_count, message_id, group_id, deduplication_id, sender_id, body, attributes, system)
  SELECT i.queue_id, i.sequence, coalesce($1::timestamptz, present()), m.sent_at,
    g.first_received_at, i.receive_count, m.message_id, i.group_id, m.deduplication_id,
    m.sender_id, m.body, m.attributes, m.system
  FROM gone, unnest($2::int[], $3::text[], $4::bigint[], $5::int[])
    WITH ORDINALITY AS i (queue_id, group_id, sequence, receive_count, position), LATERAL (
    SELECT x.sent_at, x.message_id, x.deduplication_id, x.sender_id, x.body, x.attributes, x.system
    FROM fifo_messages AS x
    WHERE x.queue_id = i.queue_id AND x.group_id = i.group_id AND x.sequence = i.sequence
    OFFSET 0) AS m, LATERAL (
    SELECT x.d_first[array_position(x.d_seq, i.sequence)] AS first_received_at
    FROM fifo_groups AS x WHERE x.queue_id = i.queue_id AND x.group_id = i.group_id
    OFFSET 0) AS g
  WHERE i.position = ANY(gone.done)
    AND i.queue_id = ANY(ARRAY(SELECT archiving.queue_id FROM archiving))
)
SELECT gone.done, gone.expired FROM gone

-- name: past_retention
-- params: now, queue_ids, group_ids, sequences, default_retention
-- Returns positions (from 1) of messages past retention or their own expiry, and of deleted ones.
SELECT i.position
FROM (SELECT coalesce($1::timestamptz, present()) AS now) AS clock,
  unnest($2::int[], $3::text[], $4::bigint[])
    WITH ORDINALITY AS i (queue_id, group_id, sequence, position), LATERAL (
  SELECT coalesce((x.attributes ->> 'MessageRetentionPeriod')::int, $5::int) AS retention
  FROM queues AS x WHERE x.queue_id = i.queue_id OFFSET 0) AS q
LEFT JOIN LATERAL (
  SELECT x.sent_at, x.expires_at FROM fifo_messages AS x
  WHERE x.queue_id = i.queue_id AND x.group_id = i.group_id AND x.sequence = i.sequence
  OFFSET 0) AS m ON true
WHERE coalesce(m.sent_at <= clock.now - q.retention * interval '1 second', true)
  OR m.expires_at <= clock.now

-- name: prior_counts
-- params: queue_id, group_ids, sequences
-- Returns how often these messages were received before they were moved to this queue.
SELECT i.sequence, m.prior_count
FROM unnest($2::text[], $3::bigint[]) AS i (group_id, sequence), LATERAL (
  SELECT x.prior_count FROM fifo_messages AS x
  WHERE x.queue_id = $1 AND x.group_id = i.group_id AND x.sequence = i.sequence
  OFFSET 0) AS m

-- name: change_visibility
-- params: now, queue_ids, group_ids, sequences, receive_counts, visibilities_ms, is_serial
-- Hides each message until now + visibility if its timeout still runs and the handle is that of its
-- last receive. Returns by position (from 1): ok, expired; absent: the message is deleted. Of two
-- rows for one message the last one counts. Messages are not written. On strict FIFO queues also
-- after the timeout; a message made visible keeps the order of its sending.
WITH l AS MATERIALIZED (
  SELECT f.queue_id, f.group_id, f.head_seq, f.d_seq, f.d_rc, f.d_until,
    i.sequences AS ss, i.counts AS cs, i.visibilities AS vs, i.positions AS ps
  FROM (
    SELECT e.queue_id, e.group_id COLLATE "C" AS group_id, array_agg(e.sequence) AS sequences,
      array_agg(e.receive_count) AS counts, array_agg(e.visibility_ms) AS visibilities,
      array_agg(e.position) AS positions
    FROM unnest($2::int[], $3::text[], $4::bigint[], $5::int[], $6::bigint[])
      WITH ORDINALITY AS e (queue_id, group_id, sequence, receive_count, visibility_ms, position)
    GROUP BY 1, 2 ORDER BY 1, 2) AS i, LATERAL (
    SELECT g.queue_id, g.group_id, g.head_seq, g.d_seq, g.d_rc, g.d_until, g.d_first
    FROM fifo_groups AS g
    WHERE g.queue_id = i.queue_id AND g.group_id = i.group_id FOR NO KEY UPDATE) AS f
), clock AS MATERIALIZED (
  SELECT coalesce($1::timestamptz, present()) AS now FROM (SELECT count(*) FROM l) AS c
), n AS MATERIALIZED (
  SELECT l.queue_id, l.group_id, l.head_seq, l.d_seq, l.d_rc, l.d_until, l.ss, l.cs, l.ps, k.ku
  FROM clock, l, LATERAL (
    SELECT array_agg(coalesce((
        SELECT clock.now + z.visibility_ms * interval '1 millisecond'
        FROM unnest(l.ss, l.cs, l.vs, l.ps) AS z (sequence, receive_count, visibility_ms, position)
        WHERE z.sequence = d.seq AND z.receive_count = d.rc AND ($7::boolean OR d.until > clock.now)
        ORDER BY z.position DESC LIMIT 1), d.until) ORDER BY d.place) AS ku
    FROM unnest(l.d_seq, l.d_rc, l.d_until) WITH ORDINALITY AS d (seq, rc, until, place)) AS k
), changed AS (
  INSERT INTO fifo_groups (queue_id, group_id, ready_at, head_seq, d_until, comes_back)
  SELECT n.queue_id, n.group_id, CASE WHEN $7::boolean AND n.ku[1] <= clock.now THEN (
      SELECT least(x.visible_at, clock.now) FROM fifo_messages AS x
      WHERE x.queue_id = n.queue_id AND x.group_id = n.group_id AND x.sequence = n.head_seq)
    ELSE n.ku[1] END, n.head_seq, n.ku, $7::boolean AND n.ku[1] > clock.now
  FROM clock, n WHERE n.ku IS NOT NULL AND ($7::boolean OR n.ku <> n.d_until)
  ON CONFLICT (queue_id, group_id) DO UPDATE
  SET d_until = excluded.d_until, ready_at = excluded.ready_at, comes_back = excluded.comes_back
)
SELECT z.position, CASE
  WHEN n.d_rc[z.place] = z.receive_count AND ($7::boolean OR n.d_until[z.place] > clock.now) THEN 'ok'
  ELSE 'expired' END
FROM clock, n, LATERAL (
  SELECT e.position, e.receive_count, array_position(n.d_seq, e.sequence) AS place
  FROM unnest(n.ps, n.ss, n.cs) AS e (position, sequence, receive_count)) AS z
WHERE z.place IS NOT NULL

-- name: release
-- params: now, queue_ids, group_ids, sequences, receive_counts
-- Undoes receives of callers that disconnected before the answer: visible at once, uncounted.
WITH l AS MATERIALIZED (
  SELECT f.queue_id, f.group_id, f.head_seq, f.d_seq, f.d_rc, f.d_until, f.d_first,
    i.sequences AS ss, i.counts AS cs
  FROM (
    SELECT e.queue_id, e.group_id COLLATE "C" AS group_id, array_agg(e.sequence) AS sequences,
      array_agg(e.receive_count) AS counts
    FROM unnest($2::int[], $3::text[], $4::bigint[], $5::int[])
      AS e (queue_id, group_id, sequence, receive_count)
    GROUP BY 1, 2 ORDER BY 1, 2) AS i, LATERAL (
    SELECT g.queue_id, g.group_id, g.head_seq, g.d_seq, g.d_rc, g.d_until, g.d_first
    FROM fifo_groups AS g
    WHERE g.queue_id = i.queue_id AND g.group_id = i.group_id FOR NO KEY UPDATE) AS f
), n AS MATERIALIZED (
  SELECT l.queue_id, l.group_id, l.head_seq, k.*
  FROM l, (SELECT coalesce($1::timestamptz, present()) AS now) AS clock, LATERAL (
    SELECT array_agg(d.rc - d.mine::int ORDER BY d.place) AS kr,
      array_agg(CASE WHEN d.mine THEN clock.now ELSE d.until END ORDER BY d.place) AS ku,
      array_agg(CASE WHEN d.mine AND d.first_rc THEN NULL ELSE d.first END ORDER BY d.place) AS kf
    FROM (
      SELECT e.rc, e.until, e.first, e.place, e.until > clock.now AND EXISTS (
          SELECT 1 FROM unnest(l.ss, l.cs) AS z (sequence, receive_count)
          WHERE z.sequence = e.seq AND z.receive_count = e.rc) AS mine, e.rc = 1 AS first_rc
      FROM unnest(l.d_seq, l.d_rc, l.d_until, l.d_first)
        WITH ORDINALITY AS e (seq, rc, until, first, place)) AS d) AS k
)
INSERT INTO fifo_groups (queue_id, group_id, ready_at, head_seq, d_rc, d_until, d_first)
SELECT n.queue_id, n.group_id, n.ku[1], n.head_seq, n.kr, n.ku, n.kf
FROM n WHERE n.kr IS NOT NULL
ON CONFLICT (queue_id, group_id) DO UPDATE
SET d_rc = excluded.d_rc, d_until = excluded.d_until, d_first = excluded.d_first,
    ready_at = excluded.ready_at

-- name: count_in_flight
-- params: now, queue_id, most
-- Counts messages in flight, up to about `most` groups with their head in flight.
SELECT coalesce(sum(x.busy), 0)::int
FROM (SELECT coalesce($1::timestamptz, present()) AS now) AS clock, LATERAL (
  SELECT (SELECT count(*) FROM unnest(f.d_until) AS u (until) WHERE u.until > clock.now) AS busy
  FROM fifo_groups AS f
  WHERE f.queue_id = $2::int AND f.ready_at > '-infinity' AND f.ready_at > clock.now
  ORDER BY f.ready_at LIMIT $3::int) AS x

-- name: counts
-- params: now, queue_id, most_groups, most_messages
-- (total, in flight, delayed). The total is exact. In flight: at most `most_groups` groups with
-- their head in flight or delayed, and as many ready ones (they hold messages in flight when only
-- their head was released). Delayed: only on a queue with DelaySeconds, at most `most_messages`
-- from the ends of `most_groups` groups, wholly delayed groups first. Expired messages that are not
-- in flight are not counted, removed or not.
WITH clock AS MATERIALIZED (
  SELECT coalesce($1::timestamptz, present()) AS now
), hidden AS (
  -- A subquery of its own: otherwise all groups are sorted before the limit.
  SELECT g.d_until FROM clock, LATERAL (
    SELECT f.d_until FROM fifo_groups AS f
    WHERE f.queue_id = $2::int AND f.ready_at > '-infinity' AND f.ready_at > clock.now
    ORDER BY f.ready_at LIMIT $3::int) AS g
), ready AS (
  SELECT g.d_until FROM clock, LATERAL (
    SELECT f.d_until FROM fifo_groups AS f
    WHERE f.queue_id = $2::int AND f.ready_at > '-infinity' AND f.ready_at <= clock.now
    ORDER BY f.ready_at DESC LIMIT $3::int) AS g
), busy AS (
  SELECT count(*) AS busy
  FROM clock, (SELECT d_until FROM hidden UNION ALL SELECT d_until FROM ready) AS g,
    unnest(g.d_until) AS u (until)
  WHERE u.until > clock.now
), late AS (
  SELECT count(*) FILTER (
      WHERE m.visible_at > clock.now AND (m.expires_at > clock.now) IS NOT FALSE) AS late
  FROM clock, LATERAL (
    SELECT m.visible_at, m.expires_at FROM (
      SELECT f.queue_id, f.group_id, f.d_last FROM fifo_groups AS f
      WHERE f.queue_id = $2::int AND f.ready_at > '-infinity' AND EXISTS (
        SELECT 1 FROM queues AS q WHERE q.queue_id = $2::int
          AND coalesce(q.attributes ->> 'DelaySeconds', '0') <> '0')
      ORDER BY f.ready_at DESC LIMIT $3::int) AS g, LATERAL (
      SELECT m.visible_at, m.expires_at FROM fifo_messages AS m
      WHERE m.queue_id = g.queue_id AND m.group_id = g.group_id AND m.sequence > g.d_last
      ORDER BY m.sequence DESC LIMIT $4::int) AS m
    LIMIT $4::int) AS m
), ended AS (
  SELECT count(*) AS ended
  FROM clock, LATERAL (
    SELECT m.group_id, m.sequence FROM fifo_messages AS m
    WHERE m.queue_id = $2::int AND m.expires_at <= clock.now
    ORDER BY m.expires_at LIMIT $4::int) AS m, LATERAL (
    SELECT f.d_until[array_position(f.d_seq, m.sequence)] AS until FROM fifo_groups AS f
    WHERE f.queue_id = $2::int AND f.group_id = m.group_id OFFSET 0) AS g
  WHERE coalesce(g.until <= clock.now, true)
)
SELECT
  (SELECT coalesce(sum(d.delta), 0) FROM queue_deltas AS d WHERE d.queue_id = $2::int)::bigint
    - (SELECT ended FROM ended) AS total,
  (SELECT busy FROM busy) AS in_flight, (SELECT late FROM late) AS delayed

-- name: next_ready
-- params: now, queue_ids
-- Returns for each queue whether a group is ready, and the milliseconds until the next one is
-- (NULL: nothing in flight or delayed).
SELECT q.queue_id,
  EXISTS (
    SELECT 1 FROM fifo_groups AS f
    WHERE f.queue_id = q.queue_id AND f.ready_at > '-infinity' AND f.ready_at <= clock.now
    OFFSET 0) AS ready,
  (SELECT ceil(date_part('epoch', f.ready_at - clock.now) * 1000)::bigint FROM fifo_groups AS f
   WHERE f.queue_id = q.queue_id AND f.ready_at > '-infinity' AND f.ready_at > clock.now
   ORDER BY f.ready_at LIMIT 1) AS in_ms
FROM (SELECT coalesce($1::timestamptz, present()) AS now) AS clock,
  unnest($2::int[]) AS q (queue_id)

-- name: purge
-- params: now, queue_id, last_sequence, limit
-- Purges one batch, in flight and delayed messages too. Returns the messages and groups deleted, 0
-- at the end. The bound keeps messages sent meanwhile. A function: it locks groups before it reads.
SELECT fifo_purge($1, $2, $3, $4)

-- name: purged
-- params: queue_id
-- Counts the messages that this transaction has purged: fifo_purge also counts deleted groups, but
-- the delta it wrote does not.
SELECT coalesce(-sum(d.delta), 0)::int FROM queue_deltas AS d
WHERE d.queue_id = $1::int AND d.xmin = pg_current_xact_id()::xid

-- name: forget_dedup
-- params: queue_id, last_sequence, limit
-- Deletes deduplication ids of messages up to this number; locks in key order, as senders do.
WITH gone AS (
  DELETE FROM fifo_dedup AS d WHERE d.ctid = ANY(ARRAY(
    SELECT f.ctid FROM fifo_dedup AS f
    WHERE f.queue_id = $1::int AND f.sequence <= $2::bigint
    ORDER BY f.dedup_key LIMIT $3::int FOR UPDATE))
  RETURNING 1
)
SELECT count(*)::int FROM gone

-- name: forget_attempts
-- params: queue_id
-- After a purge: a repeated receive attempt would find deleted messages.
DELETE FROM fifo_attempts WHERE queue_id = $1::int

-- name: expire
-- params: now, queue_id, retention, limit
-- Deletes messages past their retention from the front of each group, so never behind a message in
-- flight. Deletes messages past their own expiry anywhere, unless in flight. A group whose row has
-- been ready for longer than the retention has such a front: whole groups are found by index,
-- without reading their messages.
SELECT fifo_expire($1, $2, $3, $4)

-- name: clean_dedup
-- params: now, limit
-- Removes deduplication ids after their 5 minutes; skips rows locked by senders.
WITH gone AS (
  DELETE FROM fifo_dedup AS d WHERE d.ctid = ANY(ARRAY(
    SELECT f.ctid FROM fifo_dedup AS f
    WHERE f.expires_at <= coalesce($1::timestamptz, present())
    ORDER BY f.expires_at LIMIT $2::int FOR UPDATE SKIP LOCKED))
  RETURNING 1
)
SELECT count(*)::int FROM gone

-- name: clean_attempts
-- params: now, limit
-- Removes attempts after their 5 minutes.
WITH gone AS (
  DELETE FROM fifo_attempts AS d WHERE d.ctid = ANY(ARRAY(
    SELECT f.ctid FROM fifo_attempts AS f
    WHERE f.expires_at <= coalesce($1::timestamptz, present())
    ORDER BY f.expires_at LIMIT $2::int FOR UPDATE SKIP LOCKED))
  RETURNING 1
)
SELECT count(*)::int FROM gone

-- name: set_delay
-- params: now, queue_id, delay
-- A new DelaySeconds also applies to messages never received (docs/contract/sqs.md 2.7), in one
-- transaction for the whole queue. Only messages for which it makes a difference now are changed.
SELECT fifo_set_delay($1, $2, $3)

-- name: move
-- params: now, source_id, group_ids, sequences, receive_counts, target_ids, message_ids, source_arn
-- Sends messages anew to the same group of other queues, under the locks of the groups. Returns the
-- count: none to a deleted queue. With counts it is a move to a dead-letter queue, which keeps the
-- id and continues the count; without them a move task, whose messages start anew with new ids.
SELECT fifo_move($1, $2, $3, $4, $5, $6, $7, $8)

-- name: take_for_move
-- params: now, queue_id, retention, limit, group_ids, only
-- Locks ready groups and returns the messages that a move task may move: as for a receive, the
-- prefix of each group without messages in flight, delayed, expired or past their retention. Unless
-- `group_ids` is NULL: of these groups only, up to the first number not in `only`.
SELECT m.group_id, m.sequence, m.message_id, m.system::jsonb ->> 'DeadLetterQueueSourceArn'
FROM (SELECT coalesce($1::timestamptz, present()) AS now) AS clock, LATERAL (
  SELECT g.group_id, w.sequence, w.message_id, w.system
  FROM (
    SELECT f.queue_id, f.group_id, f.head_seq, f.d_seq, f.d_until
    FROM fifo_groups AS f
    WHERE f.queue_id = $2::int AND f.ready_at > '-infinity' AND f.ready_at <= clock.now
      AND ($5::text[] IS NULL OR f.group_id = ANY($5))
    ORDER BY f.ready_at LIMIT $4::int FOR NO KEY UPDATE SKIP LOCKED) AS g, LATERAL (
    SELECT x.sequence, x.message_id, x.system, bool_and(x.ok) OVER (ORDER BY x.sequence) AS ok
    FROM (
      SELECT m.sequence, m.message_id, m.system,
        m.sent_at > clock.now - $3::int * interval '1 second'
          AND (m.expires_at > clock.now) IS NOT FALSE
          AND coalesce(g.d_until[array_position(g.d_seq, m.sequence)], m.visible_at) <= clock.now
          AND ($6::bigint[] IS NULL OR m.sequence = ANY($6)) AS ok
      FROM fifo_messages AS m
      WHERE m.queue_id = g.queue_id AND m.group_id = g.group_id AND m.sequence >= g.head_seq
      ORDER BY m.sequence LIMIT $4::int) AS x) AS w
  WHERE w.ok LIMIT $4::int) AS m
