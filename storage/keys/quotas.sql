-- What accounts may have and how often accounts and keys may ask.

-- name: all
-- params: most
-- Every quota, by whose it is.
SELECT subject, request_count, request_seconds, queues, topics, subscriptions, logs, byte_count,
  byte_seconds
FROM quotas ORDER BY subject LIMIT $1

-- name: put
-- params: subject, request_count, request_seconds, queues, topics, subscriptions, logs, byte_count, byte_seconds
-- Sets the quota of a subject, all of it.
INSERT INTO quotas (subject, request_count, request_seconds, queues, topics, subscriptions, logs,
  byte_count, byte_seconds)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
ON CONFLICT (subject) DO UPDATE SET request_count = excluded.request_count,
  request_seconds = excluded.request_seconds, queues = excluded.queues, topics = excluded.topics,
  subscriptions = excluded.subscriptions, logs = excluded.logs,
  byte_count = excluded.byte_count, byte_seconds = excluded.byte_seconds

-- name: remove
-- params: subject
-- Leaves the subject to the settings; a row if it had a quota.
DELETE FROM quotas WHERE subject = $1 RETURNING 1

-- name: count
-- params:
-- How many there are.
SELECT count(*) FROM quotas

-- name: count_alone_from_here
-- params: kind, account_id
-- Waits for others that count things of this kind of the account, and keeps them waiting to the end
-- of the transaction. A statement of its own: what counts afterwards sees what they created. Whoever
-- waits here may hold the row of a topic; nobody who waits for such a row holds this of the same
-- kind but creators of topics, who take rows of their own only.
SELECT pg_advisory_xact_lock(1819242340 + $1::int, hashtext($2))

-- name: count_queues
-- params: account_id, most
-- Live queues of the account, in whatever region, not counted beyond `most`. Dead-letter queues that
-- were made for one of them do not count.
SELECT count(*) FROM (
  SELECT 1 FROM queues
  WHERE account_id = $1 AND deleted_at IS NULL AND parent_id IS NULL
  LIMIT $2) AS q

-- name: count_topics
-- params: account_id, most
-- The same of topics, without patterns of routing keys.
SELECT count(*) FROM (
  SELECT 1 FROM topics WHERE account_id = $1 AND NOT is_pattern LIMIT $2) AS t

-- name: count_subscriptions
-- params: account_id, most
-- The same of subscriptions, which are their subscriber's, confirmed or not.
SELECT count(*) FROM (SELECT 1 FROM subscriptions WHERE account_id = $1 LIMIT $2) AS s

-- name: count_logs
-- params: account_id, most
-- The same of logs.
SELECT count(*) FROM (
  SELECT 1 FROM logs WHERE account_id = $1 AND deleted_at IS NULL LIMIT $2) AS l
