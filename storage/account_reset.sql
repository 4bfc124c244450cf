-- Back to nothing: everything of an account, or of all accounts (account_id NULL).

-- name: queues
-- params: account_id
-- Deletes the queues, and returns their ids. A worker deletes the messages.
UPDATE queues SET deleted_at = present()
WHERE queue_id = ANY(ARRAY(
  SELECT q.queue_id FROM queues AS q
  WHERE q.deleted_at IS NULL AND ($1::text IS NULL OR q.account_id = $1)
  ORDER BY q.queue_id FOR UPDATE))
RETURNING queue_id

-- name: topics
-- params: account_id
-- Deletes the topics with their subscriptions.
DELETE FROM topics
WHERE topic_id = ANY(ARRAY(
  SELECT t.topic_id FROM topics AS t WHERE $1::text IS NULL OR t.account_id = $1
  ORDER BY t.topic_id FOR UPDATE))
RETURNING topic_id, account_id, region, is_pattern

-- name: logs
-- params: account_id
-- Logs to delete one by one, each with its partitions and groups.
SELECT log_id FROM logs
WHERE deleted_at IS NULL AND ($1::text IS NULL OR account_id = $1) ORDER BY log_id

-- name: rest
-- params: account_id
-- Deletes schedules with their pending invocations, deliveries, and what was kept of messages that
-- were not sent.
WITH invocations AS (
  DELETE FROM schedule_invocations WHERE $1::text IS NULL OR account_id = $1
), schedules AS (
  DELETE FROM schedules WHERE $1::text IS NULL OR account_id = $1
), deliveries AS (
  DELETE FROM deliveries WHERE $1::text IS NULL OR account_id = $1
), outbox AS (
  DELETE FROM outbox WHERE $1::text IS NULL OR account_id = $1
), applications AS (
  DELETE FROM platform_applications WHERE $1::text IS NULL OR account_id = $1
), attributes AS (
  DELETE FROM sms_attributes WHERE $1::text IS NULL OR account_id = $1
), opted_out AS (
  DELETE FROM sms_opted_out WHERE $1::text IS NULL OR account_id = $1
)
DELETE FROM sms_sandbox_numbers WHERE $1::text IS NULL OR account_id = $1

-- name: schedule_groups
-- params: account_id
-- Deletes the groups, after their schedules.
DELETE FROM schedule_groups WHERE $1::text IS NULL OR account_id = $1
