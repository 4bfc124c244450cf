-- Deletes of messages of standard queues by their receivers. They run on a lane: one statement per
-- flush, for the messages of many callers and many queues.
-- Every statement that needs the time takes `now`; NULL means the clock of the database.

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
