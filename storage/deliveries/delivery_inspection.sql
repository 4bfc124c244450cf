-- Deliveries for operators: gauges, lists, one in full, and operations on exhausted ones.
-- Every statement that needs the time takes `now`; NULL means the clock of the database.

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
-- Deletes the next exhausted deliveries, all or all of a topic; with ids these in any state.
-- Returns the ids.
DELETE FROM deliveries AS d
WHERE d.delivery_id = ANY(ARRAY(
  SELECT e.delivery_id FROM deliveries AS e
  WHERE e.delivery_id > $2
    AND CASE WHEN $1::bigint[] IS NULL THEN e.state = 'exhausted'
      ELSE e.delivery_id = ANY($1::bigint[]) END
    AND ($3::text IS NULL OR (e.account_id = $3 AND e.region = $4 AND e.topic_name = $5))
  ORDER BY e.delivery_id LIMIT $6 FOR UPDATE))
RETURNING d.delivery_id
