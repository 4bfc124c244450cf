-- Subscriptions, their confirmation, and those that a link ended. Changes of a subscription first
-- lock its topic (`stored_topics.lock`), so they are serialized within one topic and need no order. A
-- subscription that was not confirmed before its token expired is left out, even before a worker
-- deletes its row.

-- part: subscription
SELECT s.subscription_id, s.position, s.topic_id, s.protocol, s.endpoint, s.account_id, s.region,
  s.attributes, s.is_confirmed, s.was_authenticated, s.authenticate_on_unsubscribe, s.live_from,
  s.is_native, s.created_at, s.user_name, s.paused_at,
  t.account_id AS topic_account_id, t.topic_name, t.is_pattern
FROM subscriptions AS s JOIN topics AS t ON t.topic_id = s.topic_id

-- name: of_topics
-- params: topic_ids
-- All of these topics in order of creation, for the cache of publishing.
-- include: subscription
WHERE s.topic_id = ANY($1::int[])
ORDER BY s.position

-- name: find
-- params: subscription_id, now
-- The subscription of that id with its topic, or no row, also if it was not confirmed in time.
-- include: subscription
WHERE s.subscription_id = $1
  AND (s.is_confirmed OR s.token_expires_at > coalesce($2::timestamptz, present()))

-- name: find_by_token
-- params: token, now
-- Also long after the confirmation: the same link gives the same answer.
-- include: subscription
WHERE s.token = $1
  AND (s.is_confirmed OR s.token_expires_at > coalesce($2::timestamptz, present()))

-- name: find_by_endpoint
-- params: topic_id, protocol, endpoint
-- The endpoint's subscription to this topic, by the unique index, or no row. Expired ones were
-- removed before (`delete_expired_of_endpoint`).
-- include: subscription
WHERE s.topic_id = $1 AND s.protocol = $2 AND s.endpoint = $3

-- name: delete_expired_of_endpoint
-- params: now, topic_id, protocol, endpoint
-- Deletes a subscription not confirmed in time, before a new one is created.
DELETE FROM subscriptions
WHERE topic_id = $2 AND protocol = $3 AND endpoint = $4 AND NOT is_confirmed
  AND token_expires_at <= coalesce($1::timestamptz, present())

-- name: create
-- params: now, subscription_id, topic_id, protocol, endpoint, account_id, region, attributes, is_confirmed, is_native, token, token_seconds, user_name
-- Confirmed at once, so that ending it needs credentials; or pending for so many seconds.
-- Subscriptions for events need none: recipients of an envelope can end them, because their links
-- lead to no sign-in page of AWS.
INSERT INTO subscriptions (subscription_id, topic_id, protocol, endpoint, account_id, region,
  attributes, is_confirmed, was_authenticated, authenticate_on_unsubscribe, is_native, token,
  token_expires_at, created_at, user_name)
SELECT $2, $3, $4, $5, $6, $7, $8::jsonb, $9, $9, $9 AND NOT $10, $10, $11,
  clock.now + make_interval(secs => $12::int), clock.now, $13
FROM (SELECT coalesce($1::timestamptz, present()) AS now) AS clock

-- name: renew_token
-- params: now, subscription_id, token_seconds
-- Extends and returns the token of a pending subscription.
UPDATE subscriptions
SET token_expires_at = coalesce($1::timestamptz, present())
  + make_interval(secs => $3::int)
WHERE subscription_id = $2 AND NOT is_confirmed
RETURNING token

-- name: confirm
-- params: subscription_id, was_authenticated, authenticate_on_unsubscribe
-- Once: a second confirmation changes nothing, not even whether unsubscribing needs credentials.
-- `live_from` is drawn anew, because messages are offered to it only from now on.
UPDATE subscriptions
SET is_confirmed = true, was_authenticated = $2, authenticate_on_unsubscribe = $3,
  token_expires_at = NULL, live_from = DEFAULT
WHERE subscription_id = $1 AND NOT is_confirmed

-- name: set_paused
-- params: now, subscription_id, is_paused
-- Pauses or resumes the subscription. A second pause keeps the start of the first.
UPDATE subscriptions SET paused_at = CASE WHEN $3::boolean
  THEN coalesce(paused_at, $1::timestamptz, present()) END
WHERE subscription_id = $2

-- name: set_attributes
-- params: subscription_id, attributes
-- Replaces all attributes; the caller locks the topic and has merged the present ones.
UPDATE subscriptions SET attributes = $2::jsonb WHERE subscription_id = $1

-- name: delete
-- params: subscription_id
-- Deletes a subscription; its topic counts that. No row if it is deleted already.
WITH gone AS (
  DELETE FROM subscriptions WHERE subscription_id = $1 RETURNING topic_id
)
UPDATE topics SET subscriptions_deleted = topics.subscriptions_deleted + 1
FROM gone WHERE topics.topic_id = gone.topic_id
RETURNING topics.topic_id

-- name: remember_ended
-- params: now, subscription_id, token, token_seconds
-- Keeps the data for `restore` for so many seconds, before the deletion.
INSERT INTO ended_subscriptions (token, expires_at, subscription_id, topic_id, protocol, endpoint,
  account_id, region, attributes, is_native, user_name)
SELECT $3, coalesce($1::timestamptz, present()) + make_interval(secs => $4::int),
  s.subscription_id, s.topic_id, s.protocol, s.endpoint, s.account_id, s.region, s.attributes,
  s.is_native, s.user_name
FROM subscriptions AS s WHERE s.subscription_id = $2

-- name: find_ended
-- params: now, token
-- The ended subscription that an UnsubscribeConfirmation link can restore, or no row.
SELECT topic_id, region FROM ended_subscriptions
WHERE token = $2 AND expires_at > coalesce($1::timestamptz, present())

-- name: restore
-- params: now, token, was_authenticated, authenticate_on_unsubscribe
-- Restores the ended subscription under its old id. If its endpoint has a new subscription, that is
-- confirmed instead: the token was sent to the same endpoint.
WITH ended AS (
  DELETE FROM ended_subscriptions
  WHERE token = $2 AND expires_at > coalesce($1::timestamptz, present())
  RETURNING subscription_id, topic_id, protocol, endpoint, account_id, region, attributes, is_native,
    user_name
)
INSERT INTO subscriptions AS s (subscription_id, topic_id, protocol, endpoint, account_id, region,
  attributes, is_confirmed, was_authenticated, authenticate_on_unsubscribe, is_native, token,
  created_at, user_name)
SELECT e.subscription_id, e.topic_id, e.protocol, e.endpoint, e.account_id, e.region, e.attributes,
  true, $3, $4, e.is_native, $2, coalesce($1::timestamptz, present()), e.user_name
FROM ended AS e
ON CONFLICT (topic_id, protocol, endpoint) DO UPDATE
SET is_confirmed = true,
  live_from = CASE WHEN s.is_confirmed THEN s.live_from ELSE excluded.live_from END,
  was_authenticated = CASE WHEN s.is_confirmed THEN s.was_authenticated ELSE $3 END,
  authenticate_on_unsubscribe =
    CASE WHEN s.is_confirmed THEN s.authenticate_on_unsubscribe ELSE $4 END,
  token = $2, token_expires_at = NULL
RETURNING s.subscription_id

-- name: count_of_topic
-- params: topic_id, limit
-- Counted up to `limit`.
SELECT count(*) FROM (
  SELECT 1 FROM subscriptions WHERE topic_id = $1 LIMIT $2) AS counted

-- name: takes_large_messages
-- params: topic_id, protocols, most
-- True if the topic has at most that many subscriptions and all are of these protocols.
SELECT count(*) <= $3::int AND coalesce(bool_and(protocol = ANY($2::text[])), true) FROM (
  SELECT protocol FROM subscriptions WHERE topic_id = $1 LIMIT $3::int + 1) AS counted

-- name: count_filter_policies
-- params: topic_id, account_id, region, topic_limit, account_limit
-- Counts for the topic and the account, each up to its limit.
SELECT
  (SELECT count(*) FROM (
    SELECT 1 FROM subscriptions
    WHERE topic_id = $1 AND attributes ? 'FilterPolicy' LIMIT $4) AS counted) AS of_topic,
  (SELECT count(*) FROM (
    SELECT 1 FROM subscriptions
    WHERE account_id = $2 AND region = $3 AND attributes ? 'FilterPolicy' LIMIT $5) AS counted
  ) AS of_account

-- name: page_of_account
-- params: now, account_id, region, after_position, limit
-- Subscriptions to topics: SNS lists no patterns.
-- include: subscription
WHERE s.account_id = $2 AND s.region = $3 AND s.position > $4 AND NOT t.is_pattern
  AND (s.is_confirmed OR s.token_expires_at > coalesce($1::timestamptz, present()))
ORDER BY s.position LIMIT $5

-- name: page_of_topic
-- params: now, topic_id, after_position, limit
-- Behind `after_position`, in order of creation; the index on both finds a page without a sort.
-- Subscriptions not confirmed in time are left out.
-- include: subscription
WHERE s.topic_id = $2 AND s.position > $3
  AND (s.is_confirmed OR s.token_expires_at > coalesce($1::timestamptz, present()))
ORDER BY s.position LIMIT $4

-- name: page_of_queue
-- params: queue_arn, after_position, limit
-- Subscriptions of all accounts that send to the queue, including patterns.
-- include: subscription
WHERE s.protocol = 'sqs' AND s.endpoint = $1 AND s.position > $2 AND s.is_confirmed
ORDER BY s.position LIMIT $3

-- name: delete_expired
-- params: now, limit, account_ids, are_chosen
-- Deletes subscriptions not confirmed in time. Returns their topics.
DELETE FROM subscriptions
WHERE subscription_id = ANY(ARRAY(
  SELECT s.subscription_id FROM subscriptions AS s
  WHERE NOT s.is_confirmed
    AND s.token_expires_at <= coalesce($1::timestamptz, present())
    AND ((SELECT t.account_id FROM topics AS t WHERE t.topic_id = s.topic_id)
      = ANY($3::text[])) = $4::boolean
  ORDER BY s.token_expires_at LIMIT $2 FOR UPDATE SKIP LOCKED))
RETURNING topic_id

-- name: forget_ended
-- params: now, limit, account_ids, are_chosen
-- Deletes ended subscriptions that can no longer be restored.
DELETE FROM ended_subscriptions
WHERE token = ANY(ARRAY(
  SELECT e.token FROM ended_subscriptions AS e
  WHERE e.expires_at <= coalesce($1::timestamptz, present())
    AND ((SELECT t.account_id FROM topics AS t WHERE t.topic_id = e.topic_id)
      = ANY($3::text[])) = $4::boolean
  ORDER BY e.expires_at LIMIT $2 FOR UPDATE SKIP LOCKED))
RETURNING topic_id
