-- Quotas of accounts and rate limits of accounts and keys.

-- name: all
-- params: most
-- Every quota, by subject.
SELECT subject, request_count, request_seconds, queues, topics, subscriptions, logs, byte_count,
  byte_seconds
FROM quotas ORDER BY subject LIMIT $1

-- name: put
-- params: subject, request_count, request_seconds, queues, topics, subscriptions, logs, byte_count, byte_seconds
-- Sets the whole quota of a subject.
INSERT INTO quotas (subject, request_count, request_seconds, queues, topics, subscriptions, logs,
  byte_count, byte_seconds)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
ON CONFLICT (subject) DO UPDATE SET request_count = excluded.request_count,
  request_seconds = excluded.request_seconds, queues = excluded.queues, topics = excluded.topics,
  subscriptions = excluded.subscriptions, logs = excluded.logs,
  byte_count = excluded.byte_count, byte_seconds = excluded.byte_seconds

-- name: remove
-- params: subject
-- Removes the quota of a subject; a row if it had one.
DELETE FROM quotas WHERE subject = $1 RETURNING 1

-- name: count
-- params:
-- Counts the quotas.
SELECT count(*) FROM quotas

-- name: count_alone_from_here
-- params: kind, account_id
-- Serializes counts of this kind in the account until the transaction ends. A statement of its own:
-- a later count sees the rows that earlier holders created. A waiter may hold the row of a topic.
-- No session that waits for such a row holds this lock of the same kind, except creators of topics,
-- which lock only their own rows.
SELECT pg_advisory_xact_lock(1819242340 + $1::int, hashtext($2))

-- name: count_queues
-- params: account_id, most
-- Live queues of the account in all regions, counted up to `most`. Dead-letter queues created for
-- one of them do not count.
SELECT count(*) FROM (
  SELECT 1 FROM queues
  WHERE account_id = $1 AND deleted_at IS NULL AND parent_id IS NULL
  LIMIT $2) AS q

-- name: count_topics
-- params: account_id, most
-- As `count_queues` for topics, without patterns of routing keys.
SELECT count(*) FROM (
  SELECT 1 FROM topics WHERE account_id = $1 AND NOT is_pattern LIMIT $2) AS t

-- name: count_subscriptions
-- params: account_id, most
-- As `count_queues` for subscriptions, which belong to their subscriber, confirmed or not.
SELECT count(*) FROM (SELECT 1 FROM subscriptions WHERE account_id = $1 LIMIT $2) AS s

-- name: count_logs
-- params: account_id, most
-- As `count_queues` for logs.
SELECT count(*) FROM (
  SELECT 1 FROM logs WHERE account_id = $1 AND deleted_at IS NULL LIMIT $2) AS l
