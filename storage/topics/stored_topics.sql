-- Topics: names, attributes, tags, subscription counts, and remains of deleted ones.

-- part: topic
SELECT topic_id, account_id, region, topic_name, is_fifo, attributes, tags, subscriptions_deleted,
  created_at, paused_at
FROM topics

-- name: find
-- params: account_id, region, topic_name
-- The topic of that name, or no row. SNS does not see patterns.
-- include: topic
WHERE account_id = $1 AND region = $2 AND topic_name = $3 AND NOT is_pattern

-- name: find_pattern
-- params: account_id, region, pattern
-- The pattern of routing keys, as a topic, or no row.
-- include: topic
WHERE account_id = $1 AND region = $2 AND topic_name = $3 AND is_pattern

-- name: list_patterns
-- params: account_id, region
-- All patterns of a namespace, those without subscriptions too.
SELECT topic_id, topic_name FROM topics
WHERE account_id = $1 AND region = $2 AND is_pattern
ORDER BY topic_id

-- name: count_patterns
-- params: account_id, region, limit
-- Counted up to `limit`.
SELECT count(*) FROM (
  SELECT 1 FROM topics WHERE account_id = $1 AND region = $2 AND is_pattern LIMIT $3) AS counted

-- name: hold_patterns
-- params: topic_ids
-- Locks the patterns among these like `lock`, in one order.
SELECT topic_id FROM topics
WHERE topic_id = ANY($1::int[]) AND is_pattern
ORDER BY topic_id
FOR NO KEY UPDATE

-- name: remove_unused_patterns
-- params: topic_ids
-- Removes the patterns without a subscription, present or restorable. An earlier statement locks
-- their rows: this one then sees every committed subscription, and none is added meanwhile.
DELETE FROM topics AS t
WHERE t.topic_id = ANY($1::int[]) AND t.is_pattern
  AND NOT EXISTS (SELECT 1 FROM subscriptions AS s WHERE s.topic_id = t.topic_id)
  AND NOT EXISTS (SELECT 1 FROM ended_subscriptions AS e WHERE e.topic_id = t.topic_id)

-- name: find_by_id
-- params: topic_id
-- The topic of that id, a pattern too, or no row.
-- include: topic
WHERE topic_id = $1

-- name: lock
-- params: topic_id
-- Locks and returns the topic to the end of the transaction: serializes changes of one topic.
-- Publishing only reads the row, and a new subscription only refers to its key: neither waits for
-- this.
-- include: topic
WHERE topic_id = $1
FOR NO KEY UPDATE

-- name: create
-- params: now, account_id, region, topic_name, is_fifo, is_pattern, attributes, tags, data_protection_policy
-- The new topic, or no row if the name exists: one of several concurrent creators succeeds.
INSERT INTO topics (account_id, region, topic_name, is_fifo, is_pattern, attributes, tags,
  data_protection_policy, created_at)
VALUES ($2, $3, $4, $5, $6, $7::jsonb, $8::json, $9, coalesce($1::timestamptz, present()))
ON CONFLICT (account_id, region, topic_name, is_pattern) DO NOTHING
RETURNING topic_id, account_id, region, topic_name, is_fifo, attributes, tags,
  subscriptions_deleted, created_at, paused_at

-- name: delete
-- params: topic_id
-- Deletes the topic and its subscriptions. Returns the id, or no row if it is deleted already.
DELETE FROM topics WHERE topic_id = $1 RETURNING topic_id

-- name: list_names
-- params: account_id, region, after_name, limit
-- Names in byte order, behind `after_name`; no patterns.
SELECT topic_name FROM topics
WHERE account_id = $1 AND region = $2 AND topic_name > $3 AND NOT is_pattern
ORDER BY topic_name LIMIT $4

-- name: set_attributes
-- params: topic_id, attributes
-- Replaces the set attributes; the caller locks the row (`lock`) and has merged the present ones.
UPDATE topics SET attributes = $2::jsonb WHERE topic_id = $1

-- name: set_paused
-- params: now, topic_id, is_paused
-- Pauses or resumes the topic. A second pause keeps the start of the first.
UPDATE topics SET paused_at = CASE WHEN $3::boolean
  THEN coalesce(paused_at, $1::timestamptz, present()) END
WHERE topic_id = $2

-- name: set_tags
-- params: topic_id, tags
-- Replaces all tags; the caller locks the row. json, not jsonb, keeps their order.
UPDATE topics SET tags = $2::json WHERE topic_id = $1

-- name: data_protection_policy
-- params: topic_id
-- A statement of its own: the policy may be long, and only its own action reads it.
SELECT data_protection_policy FROM topics WHERE topic_id = $1

-- name: set_data_protection_policy
-- params: topic_id, data_protection_policy
-- NULL removes it. Publishing does not use it, so no cache is notified.
UPDATE topics SET data_protection_policy = $2 WHERE topic_id = $1

-- name: count_subscriptions
-- params: now, topic_id
-- The confirmed subscriptions, and those that can still be confirmed.
SELECT count(*) FILTER (WHERE s.is_confirmed),
  count(*) FILTER (WHERE s.token_expires_at > coalesce($1::timestamptz, present()))
FROM subscriptions AS s WHERE s.topic_id = $2

-- name: oldest_archived_at
-- params: topic_id
-- For BeginningArchiveTime: the first entry of the index by age; no row for an empty archive.
SELECT archived_at FROM topic_archive WHERE topic_id = $1 ORDER BY archived_at LIMIT 1

-- name: find_outdated_archives
-- params: now, after_topic_id, limit, account_ids, are_chosen
-- Examines the oldest message of each archive, from one to the next by index. Returns the last
-- topic examined, and the topics with messages to remove: the oldest message is past the days of
-- the archive policy, or the policy or the topic is deleted. Messages up to `upto` are removed;
-- NULL: all.
WITH RECURSIVE archives AS (
  (SELECT a.topic_id, 1 AS place FROM topic_archive AS a
   WHERE a.topic_id > $2 ORDER BY a.topic_id LIMIT 1)
  UNION ALL
  SELECT n.topic_id, h.place + 1
  FROM archives AS h, LATERAL (
    SELECT a.topic_id FROM topic_archive AS a
    WHERE a.topic_id > h.topic_id ORDER BY a.topic_id LIMIT 1) AS n
  WHERE h.place < $3
), outdated AS MATERIALIZED (
  SELECT h.topic_id, c.upto
  FROM archives AS h
  LEFT JOIN topics AS t ON t.topic_id = h.topic_id,
  LATERAL (
    SELECT coalesce($1::timestamptz, present()) - make_interval(
      days => ((t.attributes ->> 'ArchivePolicy')::jsonb ->> 'MessageRetentionPeriod')::int
    ) AS upto) AS c,
  LATERAL (
    SELECT a.archived_at FROM topic_archive AS a
    WHERE a.topic_id = h.topic_id ORDER BY a.archived_at LIMIT 1) AS o
  WHERE (c.upto IS NULL OR o.archived_at <= c.upto)
    AND coalesce(t.account_id = ANY($4::text[]), false) = $5::boolean
)
SELECT (SELECT max(archives.topic_id) FROM archives) AS last_topic_id,
  (SELECT count(*) FROM archives)::int AS looked_at,
  ARRAY(SELECT outdated.topic_id FROM outdated ORDER BY outdated.topic_id) AS topic_ids,
  ARRAY(SELECT outdated.upto FROM outdated ORDER BY outdated.topic_id) AS upto

-- name: remove_archived
-- params: topic_id, upto, limit
-- Removes the oldest messages of an archive up to an age; NULL: of any. Returns the count.
WITH gone AS (
  DELETE FROM topic_archive AS a
  WHERE a.topic_id = $1 AND a.sequence = ANY(ARRAY(
    SELECT o.sequence FROM topic_archive AS o
    WHERE o.topic_id = $1 AND o.archived_at <= coalesce($2::timestamptz, 'infinity')
    ORDER BY o.archived_at LIMIT $3 FOR UPDATE SKIP LOCKED))
  RETURNING a.sequence
)
SELECT count(*)::int FROM gone

-- name: forget_deduplication
-- params: now, limit
-- Removes the oldest expired deduplication ids, of deleted topics too. Returns the count.
WITH gone AS (
  DELETE FROM topic_dedup AS d WHERE d.ctid = ANY(ARRAY(
    SELECT o.ctid FROM topic_dedup AS o
    WHERE o.expires_at <= coalesce($1::timestamptz, present())
    ORDER BY o.expires_at LIMIT $2 FOR UPDATE SKIP LOCKED))
  RETURNING d.topic_id
)
SELECT count(*)::int FROM gone

-- name: lock_signing_keys
-- params: key_class, key
-- Serializes changes of the keys until the transaction ends, even without a row to lock.
SELECT pg_advisory_xact_lock($1::int, $2::int)

-- name: read_signing_keys
-- params: setting_name
-- All keys as one JSON list, or no row. They share the table of settings but have their own
-- statements, so that output of settings never contains a private key.
SELECT value::text FROM settings WHERE setting_name = $1

-- name: write_signing_keys
-- params: setting_name, value
-- Replaces the list.
INSERT INTO settings (setting_name, value) VALUES ($1, ($2::text)::jsonb)
ON CONFLICT ON CONSTRAINT settings_key DO UPDATE SET value = excluded.value
