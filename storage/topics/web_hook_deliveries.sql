-- Requests to web hooks: rows of `deliveries`, from the publish to the last attempt.
-- Deliveries for operators: gauges, lists, one in full, and operations on exhausted ones.

-- name: insert
-- params: now, subscription_ids, kinds, are_raw, message_ids, account_ids, regions, topic_names, endpoints, bodies, attributes
-- Writes one row for each request, due at once. attributes is NULL when none has any.
INSERT INTO deliveries (subscription_id, kind, is_raw, due_at, created_at, message_id, account_id,
  region, topic_name, endpoint, body, attributes)
SELECT i.subscription_id, i.kind, i.is_raw, clock.now, clock.now, i.message_id, i.account_id,
  i.region, i.topic_name, i.endpoint, i.body, i.attributes
FROM (SELECT coalesce($1::timestamptz, present()) AS now) AS clock,
  unnest($2::uuid[], $3::text[], $4::boolean[], $5::uuid[], $6::text[], $7::text[], $8::text[],
         $9::text[], $10::text[], $11::text[])
    AS i (subscription_id, kind, is_raw, message_id, account_id, region, topic_name, endpoint, body,
      attributes)

-- name: find_heads
-- params: now, after_subscription_id, most, account_ids, are_chosen
-- Each subscription with pending deliveries, by index from one to the next, and the seconds until
-- the first is due; NULL if it is not of these accounts, or of all others (storage.queries). A
-- million rows of one subscription cost one probe.
WITH RECURSIVE heads AS (
  (SELECT d.subscription_id, d.account_id, d.due_at, 1 AS place FROM deliveries AS d
   WHERE d.state = 'pending' AND d.subscription_id > $2::uuid
   ORDER BY d.subscription_id, d.due_at LIMIT 1)
  UNION ALL
  SELECT n.subscription_id, n.account_id, n.due_at, h.place + 1
  FROM heads AS h, LATERAL (
    SELECT d.subscription_id, d.account_id, d.due_at FROM deliveries AS d
    WHERE d.state = 'pending' AND d.subscription_id > h.subscription_id
    ORDER BY d.subscription_id, d.due_at LIMIT 1) AS n
  WHERE h.place < $3
)
SELECT h.subscription_id, CASE WHEN (h.account_id = ANY($4::text[])) = $5::boolean
  THEN date_part('epoch', h.due_at - coalesce($1::timestamptz, present())) END AS due_in
FROM heads AS h ORDER BY h.place

-- name: find_policies
-- params: subscription_ids
-- Returns the delivery policies of these subscriptions; deleted ones are missing. OFFSET keeps the
-- planner to one probe for each.
SELECT i.subscription_id, s.attributes ->> 'DeliveryPolicy' AS own_policy,
  s.attributes ->> 'RedrivePolicy' AS redrive_policy,
  t.attributes ->> 'DeliveryPolicy' AS topic_policy, t.topic_name, s.is_native,
  coalesce(s.paused_at, t.paused_at) IS NOT NULL AS is_paused
FROM unnest($1::uuid[]) AS i (subscription_id),
  LATERAL (SELECT k.topic_id, k.attributes, k.is_native, k.paused_at FROM subscriptions AS k
           WHERE k.subscription_id = i.subscription_id OFFSET 0) AS s,
  LATERAL (SELECT k.attributes, k.topic_name, k.paused_at FROM topics AS k
           WHERE k.topic_id = s.topic_id OFFSET 0) AS t

-- name: hold_throttles
-- params: now, subscription_ids
-- Locks the subscriptions and returns the seconds until each may start its next delivery; negative:
-- in the past. Skips rows locked by another worker, which is about to start deliveries.
SELECT s.subscription_id, coalesce(date_part('epoch',
    s.throttled_until - coalesce($1::timestamptz, present())), -3600) AS free_in
FROM subscriptions AS s
WHERE s.subscription_id = ANY($2::uuid[])
ORDER BY s.subscription_id
FOR NO KEY UPDATE SKIP LOCKED

-- name: set_throttles
-- params: now, subscription_ids, free_in
-- Sets the seconds until the next delivery of each may start.
UPDATE subscriptions AS s
SET throttled_until = coalesce($1::timestamptz, present())
  + ($3::float8[])[array_position($2::uuid[], s.subscription_id)] * interval '1 second'
WHERE s.subscription_id = ANY($2::uuid[])

-- name: claim
-- params: now, subscription_ids, limits, held_ids, lease_seconds
-- Leases at most `limit` due deliveries of each subscription, the most overdue first. An expired
-- lease means that its worker stopped or lost the database: the request may have been made.
-- `held_ids` are deliveries in progress in this process, whatever the clock says. The update goes
-- by ctid through an array, as in `receive` of standard_queues.sql.
WITH clock AS MATERIALIZED (
  SELECT coalesce($1::timestamptz, present()) AS now
), picked AS MATERIALIZED (
  SELECT p.ctid AS place, p.delivery_id, p.is_leased
  FROM clock, unnest($2::uuid[], $3::int[]) AS s (subscription_id, max),
    LATERAL (
      SELECT d.ctid, d.delivery_id, d.is_leased FROM deliveries AS d
      WHERE d.state = 'pending' AND d.subscription_id = s.subscription_id AND d.due_at <= clock.now
        AND NOT (d.is_leased AND d.delivery_id = ANY($4::bigint[]))
      ORDER BY d.due_at LIMIT s.max FOR NO KEY UPDATE SKIP LOCKED) AS p
)
UPDATE deliveries AS d
SET is_leased = true, due_at = clock.now + $5::float8 * interval '1 second',
    attempt_count = d.attempt_count + 1,
    lost_count = d.lost_count + CASE WHEN d.is_leased THEN 1 ELSE 0 END
FROM clock
WHERE d.ctid = ANY(ARRAY(SELECT picked.place FROM picked))
RETURNING d.delivery_id, d.attempt_count, d.lost_count, d.subscription_id, d.kind, d.is_raw,
  d.message_id, d.account_id, d.region, d.topic_name, d.endpoint, d.body,
  d.delivery_id = ANY(ARRAY(SELECT p.delivery_id FROM picked AS p WHERE p.is_leased)) AS was_lost

-- name: remove
-- params: delivery_ids, attempt_counts
-- Deletes deliveries still leased by that attempt: else another worker has them.
DELETE FROM deliveries AS d
WHERE d.delivery_id = ANY($1::bigint[]) AND d.is_leased
  AND d.attempt_count = ($2::int[])[array_position($1::bigint[], d.delivery_id)]

-- name: record_failures
-- params: now, delivery_ids, attempt_counts, delays, statuses, errors
-- Ends the leases of failed attempts: due again after the delay, or exhausted if it is NULL.
UPDATE deliveries AS d
SET is_leased = false, attempted_at = clock.now,
    state = CASE WHEN ($4::float8[])[array_position($2::bigint[], d.delivery_id)] IS NULL
      THEN 'exhausted' ELSE 'pending' END,
    due_at = clock.now
      + coalesce(($4::float8[])[array_position($2::bigint[], d.delivery_id)], 0)
        * interval '1 second',
    last_status = ($5::int[])[array_position($2::bigint[], d.delivery_id)],
    last_error = ($6::text[])[array_position($2::bigint[], d.delivery_id)]
FROM (SELECT coalesce($1::timestamptz, present()) AS now) AS clock
WHERE d.delivery_id = ANY($2::bigint[]) AND d.is_leased
  AND d.attempt_count = ($3::int[])[array_position($2::bigint[], d.delivery_id)]

-- name: give_back
-- params: now, delivery_ids, attempt_counts
-- Releases leases of aborted attempts: due at once, and counted like expired leases.
UPDATE deliveries AS d
SET is_leased = false, due_at = coalesce($1::timestamptz, present()),
    lost_count = d.lost_count + 1
WHERE d.delivery_id = ANY($2::bigint[]) AND d.is_leased
  AND d.attempt_count = ($3::int[])[array_position($2::bigint[], d.delivery_id)]

-- name: hold
-- params: delivery_ids, attempt_counts
-- Locks the deliveries still leased by that attempt, and returns the attributes of their messages.
SELECT d.delivery_id, d.attributes FROM deliveries AS d
WHERE d.delivery_id = ANY($1::bigint[]) AND d.is_leased
  AND d.attempt_count = ($2::int[])[array_position($1::bigint[], d.delivery_id)]
ORDER BY d.delivery_id
FOR UPDATE

-- name: gauge
-- params: now, most, most_subscriptions
-- Bounded at any backlog. Counts stop at `most`; above, it returns the index's estimate, which
-- vacuums keep current. The age is that of the first delivery of each subscription, the oldest of
-- `most_subscriptions`.
WITH RECURSIVE heads AS (
  (SELECT d.subscription_id, d.created_at, 1 AS place FROM deliveries AS d
   WHERE d.state = 'pending' ORDER BY d.subscription_id, d.due_at LIMIT 1)
  UNION ALL
  SELECT n.subscription_id, n.created_at, h.place + 1
  FROM heads AS h, LATERAL (
    SELECT d.subscription_id, d.created_at FROM deliveries AS d
    WHERE d.state = 'pending' AND d.subscription_id > h.subscription_id
    ORDER BY d.subscription_id, d.due_at LIMIT 1) AS n
  WHERE h.place < $3
), pending AS MATERIALIZED (
  SELECT count(*) AS counted FROM (
    SELECT 1 FROM deliveries AS d WHERE d.state = 'pending'
    ORDER BY d.subscription_id, d.due_at LIMIT $2) AS p
), exhausted AS MATERIALIZED (
  SELECT count(*) AS counted FROM (
    SELECT 1 FROM deliveries AS d WHERE d.state = 'exhausted'
    ORDER BY d.account_id, d.region, d.delivery_id LIMIT $2) AS e
)
SELECT
  (SELECT CASE WHEN p.counted < $2 THEN p.counted ELSE greatest(p.counted, (
     SELECT c.reltuples FROM pg_class AS c WHERE c.oid = 'deliveries_due'::regclass)) END
   FROM pending AS p)::bigint AS pending,
  (SELECT CASE WHEN e.counted < $2 THEN e.counted ELSE greatest(e.counted, (
     SELECT c.reltuples FROM pg_class AS c WHERE c.oid = 'deliveries_exhausted'::regclass)) END
   FROM exhausted AS e)::bigint AS exhausted,
  coalesce(greatest(date_part('epoch', coalesce($1::timestamptz, present())
    - (SELECT min(h.created_at) FROM heads AS h)), 0), 0) AS oldest_pending_seconds

-- name: list_some
-- params: now, state, only_stuck, account_id, region, topic_name, endpoint, limit
-- The oldest first; a NULL leaves a condition out. Stuck deliveries are pending, and failed or lost
-- their worker at least once, or are a minute late.
SELECT d.delivery_id, d.subscription_id, d.kind, d.state, d.is_leased, d.is_raw, d.due_at,
  d.created_at, d.attempted_at, d.attempt_count, d.lost_count, d.last_status, d.last_error,
  d.message_id, d.account_id, d.region, d.topic_name, d.endpoint, NULL::text AS body
FROM deliveries AS d, (SELECT coalesce($1::timestamptz, present()) AS now) AS clock
WHERE ($2::text IS NULL OR d.state = $2)
  AND (NOT $3::boolean OR (d.state = 'pending' AND (d.last_error IS NOT NULL OR d.lost_count > 0
    OR d.due_at < clock.now - interval '1 minute')))
  AND ($4::text IS NULL OR (d.account_id = $4 AND d.region = $5 AND d.topic_name = $6))
  AND ($7::text IS NULL OR d.endpoint = $7)
ORDER BY d.delivery_id LIMIT $8

-- name: list_of_topic
-- params: topic_id, subscription_ids, account_id, region, topic_name, limit, after_due, after_pending, after_exhausted
-- Deliveries to the web hooks of a topic and to these subscriptions of patterns, of other topics, too:
-- pending ones by due time, then exhausted ones of the topic, at most `limit` of each behind a place.
-- Reads `limit` of each subscription at most.
WITH hooks AS (
  SELECT s.subscription_id FROM subscriptions AS s
  WHERE s.topic_id = $1 AND s.protocol IN ('http', 'https')
  UNION SELECT unnest($2::uuid[])
), found AS (
  (SELECT n.delivery_id FROM hooks AS h, LATERAL (
    SELECT p.delivery_id, p.due_at FROM deliveries AS p
    WHERE p.state = 'pending' AND p.subscription_id = h.subscription_id
      AND (p.due_at, p.delivery_id) > ($7::timestamptz, $8::bigint)
    ORDER BY p.due_at, p.delivery_id LIMIT $6) AS n
   ORDER BY n.due_at, n.delivery_id LIMIT $6)
  UNION ALL
  (SELECT e.delivery_id FROM deliveries AS e
   WHERE e.state = 'exhausted' AND e.account_id = $3 AND e.region = $4 AND e.topic_name = $5
     AND e.delivery_id > $9::bigint
   ORDER BY e.delivery_id LIMIT $6)
)
SELECT d.delivery_id, d.subscription_id, d.kind, d.state, d.is_leased, d.is_raw, d.due_at,
  d.created_at, d.attempted_at, d.attempt_count, d.lost_count, d.last_status, d.last_error,
  d.message_id, d.account_id, d.region, d.topic_name, d.endpoint, NULL::text AS body
FROM found AS f JOIN deliveries AS d ON d.delivery_id = f.delivery_id
ORDER BY d.state DESC, d.due_at, d.delivery_id

-- name: find
-- params: delivery_id
-- One delivery with its body.
SELECT d.delivery_id, d.subscription_id, d.kind, d.state, d.is_leased, d.is_raw, d.due_at,
  d.created_at, d.attempted_at, d.attempt_count, d.lost_count, d.last_status, d.last_error,
  d.message_id, d.account_id, d.region, d.topic_name, d.endpoint, d.body
FROM deliveries AS d WHERE d.delivery_id = $1

-- name: summarise
-- params: now, account_id, region, topic_name, limit
-- By endpoint, those with the most deliveries first.
SELECT d.endpoint, count(*) FILTER (WHERE d.state = 'pending') AS pending,
  coalesce(date_part('epoch', max(clock.now) - min(d.created_at)
    FILTER (WHERE d.state = 'pending')), 0) AS oldest_pending_seconds,
  count(*) FILTER (WHERE d.state = 'exhausted') AS exhausted,
  coalesce(sum(d.lost_count), 0)::bigint AS lost,
  (array_agg(d.last_error ORDER BY d.attempted_at DESC, d.delivery_id DESC)
    FILTER (WHERE d.last_error IS NOT NULL))[1] AS last_error
FROM deliveries AS d, (SELECT coalesce($1::timestamptz, present()) AS now) AS clock
WHERE $2::text IS NULL OR (d.account_id = $2 AND d.region = $3 AND d.topic_name = $4)
GROUP BY d.endpoint
ORDER BY count(*) DESC, d.endpoint LIMIT $5

-- name: redrive
-- params: now, delivery_ids, after_delivery_id, account_id, region, topic_name, limit
-- Makes the next exhausted deliveries due at once, with all attempts left; without ids all, or all
-- of a topic. Returns the ids.
UPDATE deliveries AS d
SET state = 'pending', due_at = coalesce($1::timestamptz, present()), attempt_count = 0,
    lost_count = 0
WHERE d.delivery_id = ANY(ARRAY(
  SELECT e.delivery_id FROM deliveries AS e
  WHERE e.state = 'exhausted' AND e.delivery_id > $3
    AND ($2::bigint[] IS NULL OR e.delivery_id = ANY($2::bigint[]))
    AND ($4::text IS NULL OR (e.account_id = $4 AND e.region = $5 AND e.topic_name = $6))
  ORDER BY e.delivery_id LIMIT $7 FOR UPDATE))
RETURNING d.delivery_id

-- name: delete_some
-- params: delivery_ids, after_delivery_id, account_id, region, topic_name, limit
-- Deletes the next exhausted deliveries (of a topic), or these ids in any state; returns the ids.
DELETE FROM deliveries AS d
WHERE d.delivery_id = ANY(ARRAY(
  SELECT e.delivery_id FROM deliveries AS e
  WHERE e.delivery_id > $2
    AND CASE WHEN $1::bigint[] IS NULL THEN e.state = 'exhausted'
      ELSE e.delivery_id = ANY($1::bigint[]) END
    AND ($3::text IS NULL OR (e.account_id = $3 AND e.region = $4 AND e.topic_name = $5))
  ORDER BY e.delivery_id LIMIT $6 FOR UPDATE))
RETURNING d.delivery_id
