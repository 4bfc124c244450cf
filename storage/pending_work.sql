-- Kinds of background work, before a search for due work.
-- Accounts with a clock of their own that have work for a worker. Only tests have such accounts, so
-- these statements may read all their rows.

-- name: find
-- params:
-- The names of the kinds of which any exists (functions/chores.sql).
SELECT find_chores()

-- name: queues
-- params: account_ids
-- Accounts with queues, or with deleted queues not yet removed.
SELECT DISTINCT q.account_id FROM queues AS q WHERE q.account_id = ANY($1::text[])

-- name: topics
-- params: account_ids
-- Accounts with topics.
SELECT DISTINCT t.account_id FROM topics AS t WHERE t.account_id = ANY($1::text[])

-- name: move_tasks
-- params: account_ids
-- Accounts with a running move task.
SELECT DISTINCT split_part(t.source_arn, ':', 5) AS account_id FROM move_tasks AS t
WHERE t.status = 'RUNNING' AND split_part(t.source_arn, ':', 5) = ANY($1::text[])

-- name: replays
-- params: account_ids
-- Accounts with an unfinished replay.
SELECT DISTINCT t.account_id FROM replays AS r JOIN topics AS t ON t.topic_id = r.topic_id
WHERE r.due_at IS NOT NULL AND t.account_id = ANY($1::text[])

-- name: outbox
-- params: account_ids
-- Accounts with messages in the outbox.
SELECT DISTINCT o.account_id FROM outbox AS o WHERE o.account_id = ANY($1::text[])

-- name: logs
-- params: account_ids
-- Accounts with logs.
SELECT DISTINCT l.account_id FROM logs AS l WHERE l.account_id = ANY($1::text[])

-- name: next_schedules
-- params: account_ids, nows
-- Accounts with schedules or invocations to repeat: whether one is due by the clock of the account,
-- and the seconds until the next one.
SELECT i.account_id, bool_or(w.due_at <= i.now) AS is_due,
  date_part('epoch', min(w.due_at) FILTER (WHERE w.due_at > i.now) - i.now) AS next_in
FROM unnest($1::text[], $2::timestamptz[]) AS i (account_id, now)
JOIN (
  SELECT s.account_id, s.due_at FROM schedules AS s
  WHERE s.is_active AND s.due_at IS NOT NULL AND s.account_id = ANY($1::text[])
  UNION ALL
  SELECT v.account_id, v.due_at FROM schedule_invocations AS v WHERE v.account_id = ANY($1::text[])
) AS w ON w.account_id = i.account_id
GROUP BY i.account_id, i.now

-- name: next_deliveries
-- params: account_ids, nows, most
-- Subscriptions with pending deliveries: seconds until the first is due by the account's clock.
SELECT i.account_id, d.subscription_id, date_part('epoch', min(d.due_at) - i.now) AS due_in
FROM unnest($1::text[], $2::timestamptz[]) AS i (account_id, now)
JOIN deliveries AS d ON d.account_id = i.account_id AND d.state = 'pending'
GROUP BY i.account_id, i.now, d.subscription_id
ORDER BY due_in LIMIT $3
