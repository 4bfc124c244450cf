-- Messages of standard queues for whoever received them last: a message that somebody has received
-- since is not theirs any more. Each comes with the number of that receive, its receive_count then.
-- Every statement that needs the time takes `now`; NULL means the clock of the database.

-- name: delete_last_in_one
-- params: queue_id, sequences, receive_counts
-- Deletes messages of one queue that does not archive, which nearly every flush is about; both arrays
-- come as texts. Sequences ascend, so that each finds its count by halving. What is leased anew while
-- this runs is looked at again, and is another's then. Answers what was deleted.
WITH input AS MATERIALIZED (
  SELECT ($2::text)::bigint[] AS sequences, ($3::text)::int[] AS receive_counts
), gone AS (
  DELETE FROM messages AS m
  WHERE m.queue_id = $1::int
    AND m.sequence = ANY((SELECT i.sequences FROM input AS i)::bigint[])
    AND m.receive_count = ((SELECT i.receive_counts FROM input AS i)::int[])[
      width_bucket(m.sequence, (SELECT i.sequences FROM input AS i)::bigint[])]
  RETURNING m.sequence
), counted AS (
  INSERT INTO queue_deltas (queue_id, delta)
  SELECT $1::int, -n.gone FROM (SELECT count(*) AS gone FROM gone) AS n WHERE n.gone > 0
)
SELECT ARRAY(SELECT gone.sequence FROM gone)

-- name: delete_last
-- params: now, queue_ids, sequences, receive_counts
-- The same of several queues, and of those that archive, whose messages go to their archives: whether
-- a queue does is what its row says in the snapshot of the statement. By ctid and not by a join, as
-- in deletes.sql; so a message of which anything changes meanwhile is missed: `find_last` tells.
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
              AND k.receive_count = i.receive_count)
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

-- name: find_last
-- params: queue_ids, sequences
-- Those of these messages that exist, each with the number of its last receive.
SELECT i.queue_id, i.sequence, i.receive_count
FROM (
  SELECT k.queue_id, k.sequence, (
    SELECT m.receive_count FROM messages AS m
    WHERE m.queue_id = k.queue_id AND m.sequence = k.sequence) AS receive_count
  FROM unnest($1::int[], $2::bigint[]) AS k (queue_id, sequence) OFFSET 0) AS i
WHERE i.receive_count IS NOT NULL

-- name: hide_last
-- params: now, queue_id, sequences, receive_counts, seconds
-- Hides messages of one queue for so long from now, 0 shows them; sequences ascend. Answers those
-- that were changed.
UPDATE messages AS m
SET visible_at = coalesce($1::timestamptz, present()) + $5::int * interval '1 second'
WHERE m.queue_id = $2::int AND m.sequence = ANY($3::bigint[])
  AND m.receive_count = ($4::int[])[width_bucket(m.sequence, $3::bigint[])]
RETURNING m.sequence
