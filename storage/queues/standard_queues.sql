-- Standard queues. The four statements of the hot path run on lanes: one statement per flush, for
-- the messages of many callers and many queues. Entries come in as parallel arrays.

-- name: insert
-- params: now, queue_ids, message_ids, bodies, sender_ids, attributes, systems, delays, distinct_ids, distinct_counts, body_md5s, body_places, wants_sequences, is_async, leases_ms
-- Inserts the entries of live queues. Returns these queues and the instant of sending. Entries of
-- one flush become visible a microsecond apart, never after `now`, so that a receive finds them in
-- the order of the entries.
-- message_ids is the text of an array: the client writes it far faster than the array itself.
-- queue_ids and sender_ids hold one element when it is the same for all; attributes, systems and
-- delays are NULL when no entry has any. unnest pads the short ones. body_md5s is one string of 16
-- bytes for each entry. body_places is the text of an array, or NULL when each entry has the body
-- at its own position: copies of a topic message share one. Sequences are drawn in the order of the
-- entries, so they are returned in it. is_async: this commit does not wait for the disk. leases_ms
-- is NULL when no entry has a lease: a leased message is in flight from the start, as if received.
WITH clock AS MATERIALIZED (
  SELECT coalesce($1::timestamptz, present()) AS now
), live AS MATERIALIZED (
  -- OFFSET keeps the partial index of live names out: it would be read from end to end.
  SELECT q.queue_id
  FROM (SELECT queue_id, deleted_at FROM queues WHERE queue_id = ANY($9::int[]) OFFSET 0) AS q
  WHERE q.deleted_at IS NULL
), sent AS (
  INSERT INTO messages (queue_id, visible_at, sent_at, message_id, body_md5, sender_id, body,
    attributes, system, receive_count, first_received_at)
  SELECT coalesce(i.queue_id, ($2::int[])[1]),
         CASE WHEN i.lease_ms IS NULL
           THEN clock.now + coalesce(i.delay, 0) * interval '1 second'
             - (octet_length($11::bytea) / 16 - i.position) * interval '1 microsecond'
           ELSE clock.now + i.lease_ms * interval '1 millisecond' END,
         clock.now, i.message_id, substr($11::bytea, (i.position * 16 - 15)::int, 16),
         coalesce(i.sender_id, ($5::text[])[1]),
         CASE WHEN i.body_place IS NULL THEN i.body ELSE ($4::text[])[i.body_place] END,
         i.attributes, i.system, (i.lease_ms IS NOT NULL)::int,
         CASE WHEN i.lease_ms IS NOT NULL THEN clock.now END
  FROM clock, unnest($2::int[], ($3::text)::uuid[], $4::text[], $5::text[], $6::text[], $7::text[],
                     $8::int[], ($12::text)::int[], $15::bigint[])
    WITH ORDINALITY AS i (queue_id, message_id, body, sender_id, attributes, system, delay,
                          body_place, lease_ms, position)
  WHERE coalesce(i.queue_id, ($2::int[])[1]) = ANY(ARRAY(SELECT live.queue_id FROM live))
  RETURNING sequence
), counted AS (
  INSERT INTO queue_deltas (queue_id, delta)
  SELECT i.queue_id, i.sent FROM unnest($9::int[], $10::int[]) AS i (queue_id, sent)
  WHERE i.queue_id = ANY(ARRAY(SELECT live.queue_id FROM live))
)
SELECT ARRAY(SELECT queue_id FROM live) AS live, now,
  CASE WHEN $13 THEN ARRAY(SELECT sent.sequence FROM sent ORDER BY sent.sequence) END AS sequences,
  floor(date_part('epoch', now) * 1000)::bigint AS now_ms,
  CASE WHEN $14 THEN set_config('synchronous_commit', 'off', true) END
FROM clock

-- name: insert_in_one
-- params: now, queue_id, message_ids, bodies, sender_id, attributes, systems, delays, count, body_md5s
-- `insert` with less setup for the common case: entries of one queue and one sender, each with its
-- own body, without leases and sequences. Returns the instant of sending, and the queue if it is
-- live.
WITH clock AS MATERIALIZED (
  SELECT coalesce($1::timestamptz, present()) AS now, (
    -- OFFSET keeps the partial index of live names out: it would be read from end to end.
    SELECT q.queue_id
    FROM (SELECT queue_id, deleted_at FROM queues WHERE queue_id = $2::int OFFSET 0) AS q
    WHERE q.deleted_at IS NULL) AS queue_id
), sent AS (
  INSERT INTO messages (queue_id, visible_at, sent_at, message_id, body_md5, sender_id, body,
    attributes, system)
  SELECT clock.queue_id,
         clock.now + coalesce(i.delay, 0) * interval '1 second'
           - ($9::int - i.position) * interval '1 microsecond',
         clock.now, i.message_id, substr($10::bytea, (i.position * 16 - 15)::int, 16),
         $5::text, i.body, i.attributes, i.system
  FROM clock, unnest(($3::text)::uuid[], $4::text[], $6::text[], $7::text[], $8::int[])
    WITH ORDINALITY AS i (message_id, body, attributes, system, delay, position)
  WHERE clock.queue_id IS NOT NULL
), counted AS (
  INSERT INTO queue_deltas (queue_id, delta)
  SELECT clock.queue_id, $9::int FROM clock WHERE clock.queue_id IS NOT NULL
)
SELECT now, queue_id FROM clock

-- name: receive
-- params: now, queue_ids, limits, fresh_marks, received_marks, retentions, visibilities_ms
-- Leases at most `limit` messages of each queue: those with the oldest expired lease first, then
-- those never received, each from the left of its index. Nothing visible lies left of a mark, so
-- the scan skips the dead entries of consumed messages. Queues with expiring messages have their
-- own statement (priorities.sql); expiry is checked here for a process not yet notified of such
-- messages.
-- The update goes by ctid through an array: a join was planned as a table scan when prepared on an
-- empty table.
WITH clock AS MATERIALIZED (
  SELECT coalesce($1::timestamptz, present()) AS now
), picked AS MATERIALIZED (
  SELECT p.ctid FROM clock,
    unnest($2::int[], $3::int[], $4::timestamptz[], $5::timestamptz[], $6::int[])
      AS q (queue_id, max, fresh_mark, received_mark, retention),
    LATERAL (
      SELECT r.ctid FROM (
        SELECT m.ctid FROM messages AS m
        WHERE m.queue_id = q.queue_id AND m.receive_count > 0
          AND m.visible_at >= q.received_mark AND m.visible_at <= clock.now
          AND m.sent_at > clock.now - make_interval(secs => q.retention)
          AND (m.expires_at IS NULL OR m.expires_at > clock.now)
        ORDER BY m.visible_at LIMIT q.max FOR NO KEY UPDATE SKIP LOCKED) AS r
      UNION ALL
      SELECT f.ctid FROM (
        SELECT m.ctid FROM messages AS m
        WHERE m.queue_id = q.queue_id AND m.receive_count = 0
          AND m.visible_at >= greatest(q.fresh_mark, clock.now - make_interval(secs => q.retention))
          AND m.visible_at <= clock.now
          AND m.sent_at > clock.now - make_interval(secs => q.retention)
          AND (m.expires_at IS NULL OR m.expires_at > clock.now)
        ORDER BY m.visible_at LIMIT q.max FOR NO KEY UPDATE SKIP LOCKED) AS f
      LIMIT q.max) AS p
)
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
  NULL::text AS group_id, NULL::text AS deduplication_id, clock.now AS leased_at,
  m.body_md5

-- name: receive_in_one
-- params: now, queue_id, limit, fresh_mark, received_mark, retention, visibility_ms
-- As `receive` for one queue, the common case, at nine tenths of the cost.
WITH clock AS MATERIALIZED (
  SELECT n.now, n.now - make_interval(secs => $6::int) AS since,
    n.now + $7::int * interval '1 millisecond' AS until
  FROM (SELECT coalesce($1::timestamptz, present()) AS now) AS n
)
UPDATE messages AS m
SET receive_count = m.receive_count + 1,
    first_received_at = coalesce(m.first_received_at, clock.now),
    visible_at = clock.until
FROM clock
WHERE m.ctid = ANY(ARRAY(
  SELECT p.ctid FROM (
    SELECT r.ctid FROM clock, LATERAL (
      SELECT i.ctid FROM messages AS i
      WHERE i.queue_id = $2::int AND i.receive_count > 0
        AND i.visible_at >= $5::timestamptz AND i.visible_at <= clock.now
        AND i.sent_at > clock.since AND (i.expires_at IS NULL OR i.expires_at > clock.now)
      ORDER BY i.visible_at LIMIT $3::int FOR NO KEY UPDATE SKIP LOCKED) AS r
    UNION ALL
    SELECT f.ctid FROM clock, LATERAL (
      SELECT i.ctid FROM messages AS i
      WHERE i.queue_id = $2::int AND i.receive_count = 0
        AND i.visible_at >= greatest($4::timestamptz, clock.since) AND i.visible_at <= clock.now
        AND i.sent_at > clock.since AND (i.expires_at IS NULL OR i.expires_at > clock.now)
      ORDER BY i.visible_at LIMIT $3::int FOR NO KEY UPDATE SKIP LOCKED) AS f
    LIMIT $3::int) AS p))
RETURNING m.queue_id, m.sequence, m.message_id, m.receive_count, m.body, m.sender_id,
  m.attributes, m.system,
  floor(date_part('epoch', m.sent_at) * 1000)::bigint AS sent_at_ms,
  floor(date_part('epoch', m.first_received_at) * 1000)::bigint AS first_received_at_ms,
  NULL::text AS group_id, NULL::text AS deduplication_id, clock.now AS leased_at,
  m.body_md5

-- name: change_visibility
-- params: now, queue_ids, sequences, visibilities_ms
-- Hides each message until now + visibility, even after its timeout or another receive, as AWS
-- does; 0 shows it at once. Returns the changed sequences. A sequence identifies a message across
-- queues.
UPDATE messages AS m
SET visible_at = coalesce($1::timestamptz, present())
  + ($4::bigint[])[array_position($3::bigint[], m.sequence)] * interval '1 millisecond'
WHERE m.ctid = ANY(ARRAY(
    SELECT (SELECT k.ctid FROM messages AS k
            WHERE k.queue_id = i.queue_id AND k.sequence = i.sequence)
    FROM unnest($2::int[], $3::bigint[]) AS i (queue_id, sequence)))
  AND m.receive_count > 0
RETURNING m.sequence

-- name: hide_last
-- params: now, queue_id, sequences, receive_counts, seconds
-- Hides messages of one queue for so long from now, 0 shows them, if their last receive is the
-- given one; sequences ascend. Returns the changed ones.
UPDATE messages AS m
SET visible_at = coalesce($1::timestamptz, present()) + $5::int * interval '1 second'
WHERE m.queue_id = $2::int AND m.sequence = ANY($3::bigint[])
  AND m.receive_count = ($4::int[])[width_bucket(m.sequence, $3::bigint[])]
RETURNING m.sequence

-- name: release
-- params: now, queue_id, sequences, receive_counts
-- Undoes receives of callers that disconnected before the answer: visible at once, uncounted.
UPDATE messages AS m
SET visible_at = coalesce($1::timestamptz, present()),
    receive_count = m.receive_count - 1,
    first_received_at = CASE WHEN m.receive_count = 1 THEN NULL ELSE m.first_received_at END
WHERE m.queue_id = $2::int AND m.sequence = ANY($3::bigint[])
  AND m.receive_count = ($4::int[])[array_position($3::bigint[], m.sequence)]

-- name: hold
-- params: now, queue_id, sequences, receive_counts, seconds
-- Hides exhausted messages that cannot be moved now. The lease that found them is not counted: they
-- were not delivered.
UPDATE messages AS m
SET visible_at = coalesce($1::timestamptz, present()) + make_interval(secs => $5::int),
    receive_count = m.receive_count - 1
WHERE m.queue_id = $2::int AND m.sequence = ANY($3::bigint[])
  AND m.receive_count = ($4::int[])[array_position($3::bigint[], m.sequence)]

-- name: move_to_dead_letter
-- params: now, source_id, target_id, source_arn, sequences, receive_counts
-- Moves messages leased once too often. They keep id, sequence, send time and body. The count
-- continues, less the undelivered receive, and is recorded, because the target counts its own
-- receives only. They keep their priority, which then orders the target's receives, and no longer
-- expire: they would disappear unseen. Returns the count: 0 for a deleted target. A separate number
-- records the arrival in the target; a message whose queue is its own dead-letter queue keeps its
-- number.
WITH live AS MATERIALIZED (
  SELECT queue_id, has_priorities FROM queues WHERE queue_id = $3::int AND deleted_at IS NULL
), taken AS (
  DELETE FROM messages AS m
  WHERE m.queue_id = $2::int AND m.sequence = ANY($5::bigint[])
    AND m.receive_count = ($6::int[])[array_position($5::bigint[], m.sequence)]
    AND EXISTS (SELECT 1 FROM live)
  RETURNING m.*
), moved AS (
  INSERT INTO messages (queue_id, sequence, visible_at, sent_at, first_received_at, receive_count,
    message_id, system, arrival, prior_count, priority,
-- include: queues/messages.kept
  )
  SELECT $3::int, t.sequence, coalesce($1::timestamptz, present()), t.sent_at,
    t.first_received_at, t.receive_count - 1, t.message_id,
    (coalesce(t.system, '{}')::jsonb
      || jsonb_build_object('DeadLetterQueueSourceArn', $4::text))::text,
    CASE WHEN $3::int = $2::int THEN t.arrival ELSE nextval('message_sequence') END,
    t.receive_count - 1,
    coalesce(t.priority, CASE WHEN live.has_priorities THEN 0 END),
-- include: queues/messages.kept
  FROM taken AS t, live
  RETURNING priority
), counted AS (
  INSERT INTO queue_deltas (queue_id, delta)
  SELECT side.queue_id, side.sign * n.moved
  FROM (SELECT count(*) AS moved FROM moved) AS n,
    (VALUES ($2::int, -1), ($3::int, 1)) AS side (queue_id, sign)
  WHERE n.moved > 0
)
SELECT (SELECT count(*)::int FROM moved) AS moved,
  (SELECT prioritise(live.queue_id) FROM live
   WHERE NOT live.has_priorities AND EXISTS (SELECT 1 FROM moved WHERE moved.priority IS NOT NULL))
    AS prioritised

-- name: prior_counts
-- params: queue_id, sequences
-- Returns how often dead letters among these messages were received before their move here.
SELECT m.sequence, m.prior_count FROM messages AS m
WHERE m.queue_id = $1 AND m.sequence = ANY($2::bigint[]) AND m.prior_count > 0

-- name: next_visible
-- params: now, queue_ids, marks, retentions
-- Returns for each queue whether a message is receivable now, and the milliseconds until the next
-- one is visible (NULL: nothing hidden or delayed). Ignores messages that expire earlier.
SELECT q.queue_id, n.visible_at <= clock.now AS ready,
  ceil(date_part('epoch', n.visible_at - clock.now) * 1000)::bigint AS in_ms
FROM (SELECT coalesce($1::timestamptz, present()) AS now) AS clock,
  unnest($2::int[], $3::timestamptz[], $4::int[]) AS q (queue_id, mark, retention),
  LATERAL (
    SELECT least(
      (SELECT m.visible_at FROM messages AS m
       WHERE m.queue_id = q.queue_id AND m.receive_count = 0
         AND m.visible_at >= greatest(q.mark, clock.now - make_interval(secs => q.retention))
         AND (m.expires_at IS NULL OR m.expires_at > greatest(m.visible_at, clock.now))
       ORDER BY m.visible_at LIMIT 1),
      (SELECT m.visible_at FROM messages AS m
       WHERE m.queue_id = q.queue_id AND m.receive_count > 0 AND m.visible_at >= q.mark
         AND m.sent_at > clock.now - make_interval(secs => q.retention)
         AND (m.expires_at IS NULL OR m.expires_at > greatest(m.visible_at, clock.now))
       ORDER BY m.visible_at LIMIT 1)
    ) AS visible_at
  ) AS n
WHERE n.visible_at IS NOT NULL

-- name: is_left
-- params: now, queue_id, fresh_mark, received_mark, retention
-- Returns True if a message is receivable left of the marks. Reads the entries of all that were consumed
-- there and not vacuumed, so receives do not wait for it.
SELECT coalesce(
  (SELECT m.visible_at FROM messages AS m
   WHERE m.queue_id = $2::int AND m.receive_count = 0 AND m.visible_at < $3::timestamptz
     AND m.visible_at >= clock.now - make_interval(secs => $5::int)
     AND m.sent_at > clock.now - make_interval(secs => $5::int)
     AND (m.expires_at IS NULL OR m.expires_at > clock.now)
   ORDER BY m.visible_at LIMIT 1),
  (SELECT m.visible_at FROM messages AS m
   WHERE m.queue_id = $2::int AND m.receive_count > 0 AND m.visible_at < $4::timestamptz
     AND m.sent_at > clock.now - make_interval(secs => $5::int)
     AND (m.expires_at IS NULL OR m.expires_at > clock.now)
   ORDER BY m.visible_at LIMIT 1)) IS NOT NULL
FROM (SELECT coalesce($1::timestamptz, present()) AS now) AS clock

-- name: delete
-- params: queue_ids, sequences
-- Deletes messages of several queues, in flight or not. Returns the count. Input is sorted by key,
-- so two flushes lock in the same order; both parameters are the texts of arrays. By ctid and not
-- by a join: planned on a drained table, a join reads all of a full one. The statement misses a
-- message that is leased anew while it runs: `count_existing` finds it.
WITH gone AS (
  DELETE FROM messages AS m
  WHERE m.ctid = ANY(ARRAY(
    SELECT (SELECT k.ctid FROM messages AS k
            WHERE k.queue_id = i.queue_id AND k.sequence = i.sequence)
    FROM unnest(($1::text)::int[], ($2::text)::bigint[]) AS i (queue_id, sequence)))
  RETURNING m.queue_id
), counted AS (
  INSERT INTO queue_deltas (queue_id, delta)
  SELECT gone.queue_id, -count(*) FROM gone GROUP BY gone.queue_id
)
SELECT count(*) FROM gone

-- name: count_existing
-- params: queue_ids, sequences
-- Counts the messages that exist; parameters as for `delete`.
SELECT count((SELECT 1 FROM messages AS k
              WHERE k.queue_id = i.queue_id AND k.sequence = i.sequence))
FROM unnest(($1::text)::int[], ($2::text)::bigint[]) AS i (queue_id, sequence)

-- name: delete_in_one
-- params: queue_id, sequences
-- As `delete` for one queue, the common case, at three quarters of the cost: the index takes the
-- keys directly. A message leased anew meanwhile is found again by its key.
WITH gone AS (
  DELETE FROM messages AS m
  WHERE m.queue_id = $1::int AND m.sequence = ANY(($2::text)::bigint[])
  RETURNING 1
), counted AS (
  INSERT INTO queue_deltas (queue_id, delta)
  SELECT $1::int, -n.gone FROM (SELECT count(*) AS gone FROM gone) AS n WHERE n.gone > 0
)
SELECT count(*) FROM gone

-- name: delete_and_archive
-- params: now, queue_ids, sequences, receive_counts
-- As `delete` for parallel arrays, and moves deleted messages of archiving queues to their
-- archives, by the queue's row in the snapshot of the statement. Returns the messages found. With
-- counts, it deletes only messages whose last receive has that number: later receivers own the
-- others. The statement misses rows that change while it runs: `find_existing` finds them.
WITH archiving AS MATERIALIZED (
  -- OFFSET keeps the partial index of live names out: it would be read from end to end.
  SELECT q.queue_id
  FROM (SELECT queue_id, is_archiving FROM queues WHERE queue_id = ANY($2::int[]) OFFSET 0) AS q
  WHERE q.is_archiving
), gone AS (
  DELETE FROM messages AS m
  WHERE m.ctid = ANY(ARRAY(
    SELECT (SELECT k.ctid FROM messages AS k
            WHERE k.queue_id = i.queue_id AND k.sequence = i.sequence
              AND k.receive_count = coalesce(i.receive_count, k.receive_count))
    FROM unnest($2::int[], $3::bigint[], $4::int[]) AS i (queue_id, sequence, receive_count)))
  RETURNING m.*
), counted AS (
  INSERT INTO queue_deltas (queue_id, delta)
  SELECT gone.queue_id, -count(*) FROM gone GROUP BY gone.queue_id
), archived AS (
  INSERT INTO message_archive (queue_id, sequence, archived_at, sent_at, first_received_at,
    receive_count, message_id, body_md5, sender_id, body, attributes, system)
  SELECT g.queue_id, g.sequence, coalesce($1::timestamptz, present()), g.sent_at,
    g.first_received_at, g.receive_count, g.message_id, g.body_md5, g.sender_id, g.body,
    g.attributes, g.system
  FROM gone AS g WHERE g.queue_id = ANY(ARRAY(SELECT archiving.queue_id FROM archiving))
)
SELECT gone.queue_id, gone.sequence FROM gone

-- name: delete_and_archive_in_one
-- params: now, queue_id, sequences, receive_counts
-- As `delete_and_archive` for one queue, by key: PostgreSQL checks changed rows again. Sequences
-- ascend, so that each finds its count by binary search.
WITH gone AS (
  DELETE FROM messages AS m
  WHERE m.queue_id = $2::int AND m.sequence = ANY($3::bigint[])
    AND ($4::int[] IS NULL
      OR m.receive_count = ($4::int[])[width_bucket(m.sequence, $3::bigint[])])
  RETURNING m.*
), counted AS (
  INSERT INTO queue_deltas (queue_id, delta)
  SELECT $2::int, -n.gone FROM (SELECT count(*) AS gone FROM gone) AS n WHERE n.gone > 0
), archived AS (
  INSERT INTO message_archive (queue_id, sequence, archived_at, sent_at, first_received_at,
    receive_count, message_id, body_md5, sender_id, body, attributes, system)
  SELECT g.queue_id, g.sequence, coalesce($1::timestamptz, present()), g.sent_at,
    g.first_received_at, g.receive_count, g.message_id, g.body_md5, g.sender_id, g.body,
    g.attributes, g.system
  FROM gone AS g WHERE (SELECT q.is_archiving FROM queues AS q WHERE q.queue_id = $2::int)
)
SELECT gone.queue_id, gone.sequence FROM gone

-- name: find_existing
-- params: queue_ids, sequences
-- Returns the messages that exist, with the number of their last receive.
SELECT i.queue_id, i.sequence, i.receive_count
FROM (
  SELECT k.queue_id, k.sequence, (
    SELECT m.receive_count FROM messages AS m
    WHERE m.queue_id = k.queue_id AND m.sequence = k.sequence) AS receive_count
  FROM unnest($1::int[], $2::bigint[]) AS k (queue_id, sequence) OFFSET 0) AS i
WHERE i.receive_count IS NOT NULL
