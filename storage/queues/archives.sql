-- Archives of consumed messages: reading, replaying, removing. The deletes of both kinds of queues
-- fill them. A message keeps its number; numbers are in the order of sending.

-- name: scan
-- params: queue_id, after_sequence, since, until, schedule, limit, looked_at, most_bytes
-- Examines the next `looked_at` messages in order of their numbers. Returns the numbers of messages
-- that were archived in time and have the word in their header `_schedule` (NULL: any), at most
-- `limit` and `most_bytes` (at least one message); the last number processed; and whether it is the
-- end. Bodies are not read.
WITH looked AS MATERIALIZED (
  SELECT a.sequence, octet_length(a.body) + coalesce(octet_length(a.attributes), 0) AS size,
    ($3::timestamptz IS NULL OR a.archived_at >= $3) AND ($4::timestamptz IS NULL OR a.archived_at <= $4)
      AND ($5::text IS NULL
           OR coalesce(strpos(a.attributes, '"_schedule"') > 0 AND strpos(a.attributes, $5) > 0, false))
      AS is_wanted
  FROM message_archive AS a
  WHERE a.queue_id = $1::int AND a.sequence > $2::bigint
  ORDER BY a.sequence LIMIT $7::int
), wanted AS MATERIALIZED (
  SELECT l.sequence, row_number() OVER w AS position, sum(l.size) OVER w - l.size AS bytes_before
  FROM looked AS l WHERE l.is_wanted WINDOW w AS (ORDER BY l.sequence)
), chosen AS MATERIALIZED (
  SELECT w.sequence FROM wanted AS w WHERE w.position <= $6::int AND w.bytes_before < $8::bigint
), counts AS (
  SELECT (SELECT count(*) FROM wanted) = (SELECT count(*) FROM chosen) AS is_whole,
    (SELECT count(*) FROM looked) < $7::int AS is_end
)
SELECT ARRAY(SELECT c.sequence FROM chosen AS c ORDER BY c.sequence) AS sequences,
  CASE WHEN n.is_whole THEN (SELECT max(l.sequence) FROM looked AS l)
    ELSE (SELECT max(c.sequence) FROM chosen AS c) END AS last_sequence,
  n.is_whole AND n.is_end AS is_last
FROM counts AS n

-- name: scan_by_age
-- params: queue_id, after_sequence, since, until, schedule, limit, looked_at, most_bytes
-- As `scan`, over the messages archived in time. No row if there are `looked_at` or more.
WITH looked AS MATERIALIZED (
  SELECT a.sequence, octet_length(a.body) + coalesce(octet_length(a.attributes), 0) AS size,
    a.sequence > $2::bigint AND ($5::text IS NULL
      OR coalesce(strpos(a.attributes, '"_schedule"') > 0 AND strpos(a.attributes, $5) > 0, false))
      AS is_wanted
  FROM message_archive AS a
  WHERE a.queue_id = $1::int AND a.archived_at >= coalesce($3::timestamptz, '-infinity')
    AND a.archived_at <= coalesce($4::timestamptz, 'infinity')
  ORDER BY a.archived_at LIMIT $7::int
), wanted AS MATERIALIZED (
  SELECT l.sequence, row_number() OVER w AS position, sum(l.size) OVER w - l.size AS bytes_before
  FROM looked AS l WHERE l.is_wanted WINDOW w AS (ORDER BY l.sequence)
), chosen AS MATERIALIZED (
  SELECT w.sequence FROM wanted AS w WHERE w.position <= $6::int AND w.bytes_before < $8::bigint
)
SELECT ARRAY(SELECT c.sequence FROM chosen AS c ORDER BY c.sequence) AS sequences,
  (SELECT max(c.sequence) FROM chosen AS c) AS last_sequence,
  (SELECT count(*) FROM wanted) = (SELECT count(*) FROM chosen) AS is_last
WHERE (SELECT count(*) FROM looked) < $7::int

-- name: scan_ids
-- params: queue_id, sequences, limit, most_bytes
-- As `scan`, over messages by their numbers. Missing messages are skipped. A join, because for `= ANY`
-- PostgreSQL 15 to 17 may read the whole archive, in the order of the window.
WITH wanted AS MATERIALIZED (
  SELECT a.sequence, row_number() OVER w AS position, sum(a.size) OVER w - a.size AS bytes_before
  FROM (
    SELECT x.sequence, octet_length(x.body) + coalesce(octet_length(x.attributes), 0) AS size
    FROM (SELECT DISTINCT unnest($2::bigint[]) AS sequence OFFSET 0) AS i
    JOIN message_archive AS x ON x.queue_id = $1::int AND x.sequence = i.sequence) AS a
  WINDOW w AS (ORDER BY a.sequence)
), chosen AS MATERIALIZED (
  SELECT w.sequence FROM wanted AS w WHERE w.position <= $3::int AND w.bytes_before < $4::bigint
)
SELECT ARRAY(SELECT c.sequence FROM chosen AS c ORDER BY c.sequence) AS sequences,
  (SELECT max(c.sequence) FROM chosen AS c) AS last_sequence,
  (SELECT count(*) FROM wanted) = (SELECT count(*) FROM chosen) AS is_last

-- name: read
-- params: queue_id, sequences
-- Returns messages by their numbers, in order.
SELECT
-- include: queues/messages.message
  , m.archived_at, m.sent_at
FROM (
  SELECT a.*, NULL::smallint AS priority, NULL::timestamptz AS expires_at
  FROM message_archive AS a) AS m
WHERE m.queue_id = $1::int AND m.sequence = ANY($2::bigint[])
ORDER BY m.sequence

-- name: remove_before
-- params: queue_id, before, limit
-- Deletes the messages of a queue that were archived first, before that instant (NULL: all).
-- Returns the count. Waits for rows that others lock.
WITH gone AS (
  DELETE FROM message_archive AS a
  WHERE a.ctid = ANY(ARRAY(
    SELECT o.ctid FROM message_archive AS o
    WHERE o.queue_id = $1::int AND o.archived_at < coalesce($2::timestamptz, 'infinity')
    ORDER BY o.archived_at LIMIT $3::int FOR UPDATE))
  RETURNING 1
)
SELECT count(*)::int FROM gone

-- name: remove_outdated
-- params: queue_id, before, limit
-- As `remove_before` for workers: skips locked rows. NULL, all, is for deleted queues: one that a
-- saved state has brought back meanwhile keeps its archive.
WITH gone AS (
  DELETE FROM message_archive AS a
  WHERE a.ctid = ANY(ARRAY(
    SELECT o.ctid FROM message_archive AS o
    WHERE o.queue_id = $1::int AND o.archived_at < coalesce($2::timestamptz, 'infinity')
      AND ($2 IS NOT NULL OR NOT EXISTS (
        SELECT FROM queues AS q WHERE q.queue_id = $1::int AND q.deleted_at IS NULL))
    ORDER BY o.archived_at LIMIT $3::int FOR UPDATE SKIP LOCKED))
  RETURNING 1
)
SELECT count(*)::int FROM gone

-- name: find_outdated
-- params: now, after_queue_id, limit, account_ids, are_chosen
-- Examines the oldest archived message of each queue, from one queue to the next by index: queues
-- without an archive cost nothing. Returns the last queue examined, and the queues with messages
-- older than their archive period, with the instant before which those were archived. NULL: all,
-- because the queue is deleted.
WITH RECURSIVE heads AS (
  (SELECT a.queue_id, a.archived_at, 1 AS place FROM message_archive AS a
   WHERE a.queue_id > $2::int ORDER BY a.queue_id, a.archived_at LIMIT 1)
  UNION ALL
  SELECT n.queue_id, n.archived_at, h.place + 1
  FROM heads AS h, LATERAL (
    SELECT a.queue_id, a.archived_at FROM message_archive AS a
    WHERE a.queue_id > h.queue_id ORDER BY a.queue_id, a.archived_at LIMIT 1) AS n
  WHERE h.place < $3::int
), outdated AS MATERIALIZED (
  SELECT h.queue_id, CASE WHEN q.is_live
    THEN coalesce($1::timestamptz, present()) - make_interval(days => q.archive_days) END AS before
  FROM heads AS h LEFT JOIN LATERAL (
    SELECT x.account_id, x.archive_days, x.deleted_at IS NULL AS is_live FROM queues AS x
    WHERE x.queue_id = h.queue_id OFFSET 0) AS q ON true
  WHERE (NOT coalesce(q.is_live, false) OR h.archived_at
    < coalesce($1::timestamptz, present()) - make_interval(days => q.archive_days))
    AND coalesce(q.account_id = ANY($4::text[]), false) = $5::boolean
)
SELECT (SELECT max(h.queue_id) FROM heads AS h) AS last_queue_id,
  (SELECT count(*) FROM heads)::int AS looked_at,
  ARRAY(SELECT o.queue_id FROM outdated AS o ORDER BY o.queue_id) AS queue_ids,
  ARRAY(SELECT o.before FROM outdated AS o ORDER BY o.queue_id) AS befores
