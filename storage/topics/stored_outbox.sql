-- The outbox: messages that AWS would send by e-mail, SMS or push, or to Lambda or Firehose. They
-- are kept for a while for inspection; `outbox_id` is the order of writing.

-- name: insert
-- params: now, account_ids, regions, protocols, destinations, kinds, topic_arns, subscription_arns, message_ids, subjects, bodies, attributes
-- Writes messages in order, from parallel arrays, in transactions and on a lane.
INSERT INTO outbox (account_id, region, protocol, destination, kind, topic_arn, subscription_arn,
  message_id, subject, body, attributes, created_at)
SELECT i.account_id, i.region, i.protocol, i.destination, i.kind, i.topic_arn, i.subscription_arn,
       i.message_id::uuid, i.subject, i.body, i.attributes,
       coalesce($1::timestamptz, present())
FROM unnest($2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[],
            $9::text[], $10::text[], $11::text[], $12::text[])
  WITH ORDINALITY AS i (account_id, region, protocol, destination, kind, topic_arn,
    subscription_arn, message_id, subject, body, attributes, position)
ORDER BY i.position

-- name: page
-- params: account_id, region, protocol, destination, topic_arn, kind, after_id, limit, most_bytes
-- The next messages of an account behind `after_id` in order of writing; a filter that is NULL
-- matches all. A page has at most `most_bytes` of bodies and attributes, but at least one message.
-- `is_last`: nothing follows the page. Sizes are read without the texts themselves.
SELECT p.outbox_id, p.account_id, p.region, p.protocol, p.destination, p.kind, p.topic_arn,
  p.subscription_arn, p.message_id::text AS message_id, p.subject, p.body, p.attributes, p.created_at,
  p.found <= $8 AND p.size = p.until AS is_last
FROM (
  SELECT o.*, count(*) OVER () AS found, row_number() OVER (ORDER BY o.outbox_id) AS position,
    sum(o.length) OVER () AS size, sum(o.length) OVER (ORDER BY o.outbox_id) AS until
  FROM (
    SELECT *, octet_length(body) + coalesce(octet_length(attributes), 0) AS length FROM outbox
    WHERE account_id = $1 AND outbox_id > $7
      AND ($2::text IS NULL OR region = $2) AND ($3::text IS NULL OR protocol = $3)
      AND ($4::text IS NULL OR destination = $4) AND ($5::text IS NULL OR topic_arn = $5)
      AND ($6::text IS NULL OR kind = $6)
    ORDER BY outbox_id LIMIT $8::int + 1) AS o
) AS p
WHERE p.position <= $8 AND (p.until <= $9::bigint OR p.position = 1)
ORDER BY p.outbox_id

-- name: find
-- params: account_id, outbox_id
-- One message, or no row. The account is checked, too: a number alone would expose messages of
-- others.
SELECT outbox_id, account_id, region, protocol, destination, kind, topic_arn, subscription_arn,
  message_id::text AS message_id, subject, body, attributes, created_at
FROM outbox
WHERE account_id = $1 AND outbox_id = $2

-- name: last_id
-- params: account_id
-- The newest message of the account; 0 without one.
SELECT coalesce(max(outbox_id), 0) FROM outbox WHERE account_id = $1

-- name: clear
-- params: account_id, region, protocol, destination, topic_arn, kind, after_id, last_id, limit
-- Deletes the next messages of an account behind `after_id` up to `last_id`, filtered like `page`.
-- Returns the count and the last message picked, or NULL.
WITH picked AS MATERIALIZED (
  SELECT outbox_id FROM outbox
  WHERE account_id = $1 AND outbox_id > $7 AND outbox_id <= $8
    AND ($2::text IS NULL OR region = $2) AND ($3::text IS NULL OR protocol = $3)
    AND ($4::text IS NULL OR destination = $4) AND ($5::text IS NULL OR topic_arn = $5)
    AND ($6::text IS NULL OR kind = $6)
  ORDER BY outbox_id LIMIT $9 FOR UPDATE
), gone AS (
  DELETE FROM outbox WHERE outbox_id = ANY(ARRAY(SELECT outbox_id FROM picked)) RETURNING 1
)
SELECT (SELECT count(*) FROM gone), (SELECT max(outbox_id) FROM picked)

-- name: remove_old
-- params: now, days, limit, account_ids, are_chosen
-- Deletes the oldest messages beyond that age. Returns the count.
WITH picked AS MATERIALIZED (
  SELECT outbox_id FROM outbox
  WHERE created_at < coalesce($1::timestamptz, present()) - make_interval(days => $2::int)
    AND (account_id = ANY($4::text[])) = $5::boolean
  ORDER BY created_at LIMIT $3 FOR UPDATE SKIP LOCKED
), gone AS (
  DELETE FROM outbox WHERE outbox_id = ANY(ARRAY(SELECT outbox_id FROM picked)) RETURNING 1
)
SELECT count(*) FROM gone

-- name: find_excess
-- params: after_account_id, limit, most
-- The next accounts with messages behind that one, each with the last message behind its newest
-- `most`, or NULL. Skips from account to account by index.
WITH RECURSIVE accounts AS (
  (SELECT account_id FROM outbox WHERE account_id > $1 ORDER BY account_id LIMIT 1)
  UNION ALL
  SELECT (SELECT o.account_id FROM outbox AS o WHERE o.account_id > a.account_id
          ORDER BY o.account_id LIMIT 1)
  FROM accounts AS a WHERE a.account_id IS NOT NULL
)
SELECT a.account_id,
  (SELECT o.outbox_id FROM outbox AS o WHERE o.account_id = a.account_id
   ORDER BY o.outbox_id DESC OFFSET $3::int LIMIT 1) AS last_id
FROM (SELECT account_id FROM accounts WHERE account_id IS NOT NULL LIMIT $2) AS a

-- name: remove_excess
-- params: account_id, last_id, limit
-- Deletes the oldest messages of an account up to `last_id`. Returns the count.
WITH picked AS MATERIALIZED (
  SELECT outbox_id FROM outbox
  WHERE account_id = $1 AND outbox_id <= $2
  ORDER BY outbox_id LIMIT $3 FOR UPDATE SKIP LOCKED
), gone AS (
  DELETE FROM outbox WHERE outbox_id = ANY(ARRAY(SELECT outbox_id FROM picked)) RETURNING 1
)
SELECT count(*) FROM gone
