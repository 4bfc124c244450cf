-- Queues: names, attributes, tags, tombstones, counters. A row with deleted_at is a tombstone: it
-- blocks the name for a while. A worker removes the contents of the queue and then the row.

-- part: queue
SELECT queue_id, account_id, region, queue_name, is_fifo, attributes, tags, created_at, modified_at,
  is_archiving, archive_days, grouped_from,
  title, is_serial, has_priorities, most_messages, max_deliveries, paused_at
FROM queues

-- name: find
-- params: account_id, region, queue_name
-- The live queue of that name, or no row.
-- include: queue
WHERE account_id = $1 AND region = $2 AND queue_name = $3 AND deleted_at IS NULL

-- name: find_many
-- params: account_id, region, queue_names
-- The live queues of these names; unknown names are skipped.
-- include: queue
WHERE account_id = $1 AND region = $2 AND queue_name = ANY($3::text[]) AND deleted_at IS NULL

-- name: find_by_id
-- params: queue_id
-- The live queue of that id, or no row: for workers, whose rows name queues by id.
-- include: queue
WHERE queue_id = $1 AND deleted_at IS NULL

-- name: lock
-- params: queue_id
-- Locks and returns the live queue to the end of the transaction: serializes changes of one queue.
-- Sends and receives only read the row, so they never wait for this.
-- include: queue
WHERE queue_id = $1 AND deleted_at IS NULL
FOR NO KEY UPDATE

-- name: create
-- params: now, account_id, region, queue_name, is_fifo, attributes, tags, dead_letter_arn, is_archiving, archive_days, title, is_serial, has_priorities, most_messages, max_deliveries
-- The new queue, or no row if a live one has the name: one of several concurrent creators succeeds.
INSERT INTO queues (account_id, region, queue_name, is_fifo, attributes, tags, dead_letter_arn,
  created_at, modified_at, is_archiving, archive_days,
  title, is_serial, has_priorities, most_messages, max_deliveries)
SELECT $2, $3, $4, $5, $6::jsonb, $7::jsonb, $8, clock.now, clock.now, $9, $10, $11, $12, $13, $14, $15
FROM (SELECT coalesce($1::timestamptz, present()) AS now) AS clock
ON CONFLICT (account_id, region, queue_name) WHERE deleted_at IS NULL DO NOTHING
RETURNING queue_id, account_id, region, queue_name, is_fifo, attributes, tags,
  created_at, modified_at, is_archiving, archive_days, grouped_from,
  title, is_serial, has_priorities, most_messages, max_deliveries, paused_at

-- name: deleted_recently
-- params: now, account_id, region, queue_name, seconds
-- Returns true if a queue of that name was deleted less than `seconds` ago. Bounded on both sides:
-- a clock that was moved ahead and back must not block a name for days.
SELECT EXISTS (
  SELECT 1 FROM queues
  WHERE account_id = $2 AND region = $3 AND queue_name = $4 AND deleted_at IS NOT NULL
    AND deleted_at > coalesce($1::timestamptz, present()) - make_interval(secs => $5::int)
    AND deleted_at < coalesce($1::timestamptz, present()) + make_interval(secs => $5::int))

-- name: delete
-- params: now, queue_id
-- Deletes the queue and the dead-letter queue created for it. Returns their ids; no row if the
-- queue is not live. From the commit on no send finds them.
WITH gone AS MATERIALIZED (
  UPDATE queues SET deleted_at = coalesce($1::timestamptz, present())
  WHERE queue_id = $2 AND deleted_at IS NULL
  RETURNING queue_id
), with_it AS (
  UPDATE queues AS q SET deleted_at = coalesce($1::timestamptz, present())
  FROM gone AS g WHERE q.parent_id = g.queue_id AND q.deleted_at IS NULL
  RETURNING q.queue_id
)
SELECT queue_id FROM gone UNION ALL SELECT queue_id FROM with_it

-- name: list_names
-- params: account_id, region, prefix, after_name, limit
-- Names that start with the prefix, in byte order, behind `after_name`. '~' sorts behind every
-- character of a name, so the range is contiguous in the index.
SELECT queue_name FROM queues
WHERE account_id = $1 AND region = $2 AND deleted_at IS NULL
  AND queue_name >= $3 AND queue_name < $3 || '~' AND queue_name > $4
ORDER BY queue_name LIMIT $5

-- name: set_attributes
-- params: now, queue_id, attributes, dead_letter_arn
-- Replaces the settable attributes; the caller locks the row (`lock`). The ARN of the dead-letter
-- queue has its own column, so that ListDeadLetterSourceQueues has an index. Deduplication by group
-- starts after the 5 minutes in which ids of the whole queue are still valid.
UPDATE queues
SET attributes = $3::jsonb, dead_letter_arn = $4, modified_at = clock.now,
  grouped_from = CASE
    WHEN $3::jsonb ->> 'DeduplicationScope' IS DISTINCT FROM 'messageGroup' THEN NULL
    WHEN attributes ->> 'DeduplicationScope' = 'messageGroup' THEN grouped_from
    ELSE clock.now + interval '5 minutes' END
FROM (SELECT coalesce($1::timestamptz, present()) AS now) AS clock
WHERE queue_id = $2

-- name: set_max_deliveries
-- params: queue_id, max_deliveries
-- The caller locks the row (`lock`) and notifies all processes.
UPDATE queues SET max_deliveries = $2 WHERE queue_id = $1

-- name: set_paused
-- params: now, queue_id, is_paused
-- Pauses or resumes the queue. A second pause keeps the start of the first.
UPDATE queues SET paused_at = CASE WHEN $3::boolean
  THEN coalesce(paused_at, $1::timestamptz, present()) END
WHERE queue_id = $2 AND deleted_at IS NULL

-- name: set_tags
-- params: queue_id, tags
-- Replaces all tags; the caller locks the row (`lock`) and has merged the present ones. Tags are
-- not attributes: LastModifiedTimestamp stays.
UPDATE queues SET tags = $2::jsonb WHERE queue_id = $1

-- name: set_archiving
-- params: queue_id, is_archiving, archive_days
-- Sets whether deleted messages are archived, and for how many days. The commit informs deletes.
UPDATE queues SET is_archiving = $2, archive_days = $3 WHERE queue_id = $1 AND deleted_at IS NULL

-- name: total_arrived
-- params: queue_id
-- Messages ever added: sent, moved here or replayed. Exact: the sum of the positive parts of the
-- deltas, which folded deltas preserve.
SELECT coalesce(sum(coalesce(d.arrived, greatest(d.delta, 0))), 0)::bigint
FROM queue_deltas AS d WHERE d.queue_id = $1

-- name: purged_recently
-- params: now, queue_id, seconds
-- Returns true if the queue was purged less than `seconds` ago. Bounded on both sides, like
-- deleted_recently.
SELECT coalesce(
  abs(date_part('epoch', coalesce($1::timestamptz, present()) - purged_at)) < $3::int, false)
FROM queues WHERE queue_id = $2

-- name: set_purged
-- params: now, queue_id, seconds
-- Records that the queue was purged so many seconds ago.
UPDATE queues SET purged_at = coalesce($1::timestamptz, present()) - make_interval(secs => $3::int)
WHERE queue_id = $2

-- name: list_places
-- params: account_id, limit
-- The accounts and regions that have a queue, a topic or a log; NULL: of all accounts.
SELECT account_id, region FROM queues
WHERE deleted_at IS NULL AND ($1::text IS NULL OR account_id = $1)
UNION SELECT account_id, region FROM topics WHERE $1::text IS NULL OR account_id = $1
UNION SELECT account_id, region FROM logs WHERE $1::text IS NULL OR account_id = $1
ORDER BY account_id, region LIMIT $2

-- name: dead_letter_sources
-- params: dead_letter_arn, after_queue_id, limit
-- The live queues whose redrive policy names that dead-letter queue, oldest first.
SELECT queue_id, queue_name FROM queues
WHERE dead_letter_arn = $1 AND deleted_at IS NULL AND queue_id > $2
ORDER BY queue_id LIMIT $3

-- name: count_hidden
-- params: now, queue_id, limit
-- Total, in flight, delayed. The total is exact and costs a few rows; the other two are counted in
-- their partial indexes up to `limit`, so the time is independent of depth. Expired messages not
-- yet removed are counted and subtracted.
SELECT
  (SELECT coalesce(sum(d.delta), 0)::bigint FROM queue_deltas AS d WHERE d.queue_id = $2)
    - (SELECT count(*) FROM messages AS m WHERE m.queue_id = $2 AND m.expires_at <= clock.now)
    AS total,
  (SELECT count(*) FROM (
    SELECT 1 FROM messages AS m
    WHERE m.queue_id = $2 AND m.receive_count > 0 AND m.visible_at > clock.now
      AND (m.expires_at IS NULL OR m.expires_at > clock.now)
    LIMIT $3) AS hidden) AS in_flight,
  (SELECT count(*) FROM (
    SELECT 1 FROM messages AS m
    WHERE m.queue_id = $2 AND m.receive_count = 0 AND m.visible_at > clock.now
      AND (m.expires_at IS NULL OR m.expires_at > clock.now)
    LIMIT $3) AS hidden) AS delayed
FROM (SELECT coalesce($1::timestamptz, present()) AS now) AS clock

-- name: count_fresh_visible
-- params: now, queue_id, limit
-- Receivable messages never received, counted up to `limit`.
SELECT count(*) FROM (
  SELECT 1 FROM messages AS m
  WHERE m.queue_id = $2 AND m.receive_count = 0
    AND m.visible_at <= coalesce($1::timestamptz, present())
    AND (m.expires_at IS NULL OR m.expires_at > coalesce($1::timestamptz, present()))
  LIMIT $3) AS visible

-- name: read_past_gone
-- params: queue_id
-- Reads to the first message in every receive order. After many deletes the first reader visits
-- each deleted row and marks it dead in the index: 5 to 8 s for a million. Later readers skip these
-- entries, so this need not be a receive.
SELECT count(*) FROM (
  (SELECT 1 FROM messages AS m WHERE m.queue_id = $1 AND m.receive_count = 0
   ORDER BY m.visible_at LIMIT 1)
  UNION ALL
  (SELECT 1 FROM messages AS m WHERE m.queue_id = $1 AND m.receive_count > 0
   ORDER BY m.visible_at LIMIT 1)
  UNION ALL
  SELECT 1
  FROM unnest('{10,9,8,7,6,5,4,3,2,1,0}'::smallint[]) AS level (priority),
    unnest('{1,0}'::int[]) AS seen (received), LATERAL (
    SELECT m.sequence FROM messages AS m
    WHERE m.queue_id = $1 AND m.priority = level.priority
      AND least(m.receive_count, 1) = seen.received
    ORDER BY m.visible_at, m.sequence LIMIT 1) AS f) AS found

-- name: purge_batch
-- params: queue_id, after_sequence, last_sequence, limit
-- Deletes the next messages in send order, in flight and delayed ones too. Returns how many it
-- examined and the last of them. Locks in key order like every statement that waits; the delete
-- goes by key, so it finds a message leased after the snapshot.
WITH picked AS MATERIALIZED (
  SELECT m.sequence FROM messages AS m
  WHERE m.queue_id = $1 AND m.sequence > $2 AND m.sequence <= $3
  ORDER BY m.sequence LIMIT $4 FOR UPDATE
), gone AS (
  DELETE FROM messages AS m
  WHERE m.queue_id = $1 AND m.sequence = ANY(ARRAY(SELECT picked.sequence FROM picked))
  RETURNING 1
), counted AS (
  INSERT INTO queue_deltas (queue_id, delta)
  SELECT $1, -n.gone FROM (SELECT count(*) AS gone FROM gone) AS n WHERE n.gone > 0
)
SELECT count(*) AS looked_at, max(sequence) AS last_sequence FROM picked
