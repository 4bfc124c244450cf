-- API keys and access keys; quotas of accounts and rate limits of accounts and keys; recent sends
-- of producers. `now`: NULL means the clock of the database. Only `live`, `sealed`, `sample` and
-- `all_sealed` read hashes or encrypted secrets. Statements that return keys have their columns in
-- the order of `Key`; `live` has the hash and the secrets behind them.

-- name: create
-- params: now, kind, secret_hash, access_key, secret, account_id, key_name, rate_requests, rate_seconds, expires_at, is_administrator, policy
-- Creates a key; no row if the account has one of that name that is not revoked.
INSERT INTO keys (kind, secret_hash, access_key, secret, account_id, key_name, rate_requests,
  rate_seconds, expires_at, is_administrator, policy, created_at)
SELECT $2, $3::bytea, $4, $5::bytea, $6, $7, $8, $9, $10, $11, $12, coalesce($1::timestamptz, present())
ON CONFLICT (account_id, key_name) WHERE revoked_at IS NULL DO NOTHING
RETURNING key_id, kind, account_id, key_name, rate_requests, rate_seconds, created_at, expires_at,
  revoked_at, is_administrator, disabled_at, access_key, previous_until, policy

-- name: count
-- params:
-- Counts keys that are not revoked: each process keeps all of them.
SELECT count(*) FROM keys WHERE revoked_at IS NULL

-- name: page
-- params: account_id, after_id, with_revoked, limit
-- Keys of an account (NULL: of all), by number, behind one of them.
SELECT key_id, kind, account_id, key_name, rate_requests, rate_seconds, created_at, expires_at,
  revoked_at, is_administrator, disabled_at, access_key, previous_until, policy
FROM keys
WHERE ($1::text IS NULL OR account_id = $1) AND key_id > $2 AND ($3 OR revoked_at IS NULL)
ORDER BY key_id LIMIT $4

-- name: revoke
-- params: now, account_id, key_id
-- Revokes a key of an account (NULL: of any); no row if there is none. A revoked key keeps its
-- instant of revocation. Deletes its encrypted secrets.
UPDATE keys SET revoked_at = coalesce(revoked_at, $1::timestamptz, present()), secret = NULL,
  previous_secret = NULL, previous_until = NULL
WHERE key_id = $3 AND ($2::text IS NULL OR account_id = $2)
RETURNING key_id, kind, account_id, key_name, rate_requests, rate_seconds, created_at, expires_at,
  revoked_at, is_administrator, disabled_at, access_key, previous_until, policy

-- name: live
-- params: key_ids
-- Returns the data that verifies keys: those of these numbers (NULL: all) that are active.
SELECT key_id, kind, account_id, key_name, rate_requests, rate_seconds, created_at, expires_at,
  revoked_at, is_administrator, disabled_at, access_key, previous_until, policy, secret_hash, secret,
  previous_secret
FROM keys
WHERE revoked_at IS NULL AND disabled_at IS NULL AND ($1::bigint[] IS NULL OR key_id = ANY($1))

-- name: sealed
-- params: limit
-- Encrypted secrets of at most `limit` keys that are not revoked; all share an encryption key.
SELECT access_key, secret FROM keys WHERE secret IS NOT NULL AND revoked_at IS NULL LIMIT $1

-- name: sample
-- params:
-- One encrypted secret. The lock conflicts with `hold`, so that the common encryption key stays. It
-- is the weakest one, because several sessions may read the same row.
SELECT access_key, secret FROM keys WHERE secret IS NOT NULL AND revoked_at IS NULL LIMIT 1
FOR KEY SHARE

-- name: hold
-- params:
-- Locks keys against creation, changes and samples until the transaction ends.
LOCK TABLE keys IN EXCLUSIVE MODE

-- name: all_sealed
-- params:
-- Every encrypted secret, also of disabled keys.
SELECT key_id, access_key, secret, previous_secret FROM keys WHERE secret IS NOT NULL ORDER BY key_id

-- name: seal_again
-- params: key_ids, secrets, previous_secrets
-- Stores re-encrypted secrets.
UPDATE keys AS k SET secret = given.secret, previous_secret = given.previous_secret
FROM unnest($1::bigint[], $2::bytea[], $3::bytea[]) AS given (key_id, secret, previous_secret)
WHERE k.key_id = given.key_id

-- name: has_administrator
-- params:
-- Returns true if a key that is not revoked is an administrator's.
SELECT EXISTS (SELECT FROM keys WHERE is_administrator AND revoked_at IS NULL)

-- name: rotate
-- params: now, account_id, key_id, secret, overlap_seconds
-- Replaces the secret of a key of an account (NULL: of any). The previous one stays valid for
-- `overlap_seconds`, the one before is invalid. No row if there is no such key with a secret.
UPDATE keys SET secret = $4::bytea,
  previous_secret = CASE WHEN $5::int > 0 THEN secret END,
  previous_until = CASE WHEN $5::int > 0
    THEN coalesce($1::timestamptz, present()) + make_interval(secs => $5::int) END
WHERE key_id = $3 AND ($2::text IS NULL OR account_id = $2) AND secret IS NOT NULL
  AND revoked_at IS NULL
RETURNING key_id, kind, account_id, key_name, rate_requests, rate_seconds, created_at, expires_at,
  revoked_at, is_administrator, disabled_at, access_key, previous_until, policy

-- name: disable
-- params: now, account_id, key_id, is_disabled
-- Disables or enables a key of an account (NULL: of any); no row if there is none.
UPDATE keys SET disabled_at = CASE WHEN $4::boolean
  THEN coalesce(disabled_at, $1::timestamptz, present()) END
WHERE key_id = $3 AND ($2::text IS NULL OR account_id = $2) AND revoked_at IS NULL
RETURNING key_id, kind, account_id, key_name, rate_requests, rate_seconds, created_at, expires_at,
  revoked_at, is_administrator, disabled_at, access_key, previous_until, policy

-- name: give_policy
-- params: account_id, key_id, policy
-- Sets the policy (NULL: none) of a key of an account (NULL: of any); no row without such a key.
UPDATE keys SET policy = $3
WHERE key_id = $2 AND ($1::text IS NULL OR account_id = $1) AND revoked_at IS NULL
RETURNING key_id, kind, account_id, key_name, rate_requests, rate_seconds, created_at, expires_at,
  revoked_at, is_administrator, disabled_at, access_key, previous_until, policy

-- name: forget
-- params: now, seconds, limit
-- Deletes at most `limit` keys revoked `seconds` ago, and returns one row for each. MATERIALIZED,
-- or the plan may evaluate the subquery for each row, with other results.
WITH old AS MATERIALIZED (
  SELECT key_id FROM keys
  WHERE revoked_at < coalesce($1::timestamptz, present()) - make_interval(secs => $2)
  ORDER BY key_id LIMIT $3 FOR UPDATE SKIP LOCKED
)
DELETE FROM keys AS k USING old WHERE k.key_id = old.key_id
RETURNING 1

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

-- name: count_quotas
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

-- name: take
-- params: now, account_ids, producer_ids, limits, window_seconds, needed, per_slot, returned, returned_slots
-- Permits for producers, whose keys must be in order (functions/rates.sql).
SELECT granted, slots, lease_ms, hold_ms
FROM take_permits($1::timestamptz, $2::text[], $3::text[], $4::int[], $5::int[], $6::int[],
  $7::float8[], $8::int[], $9::bigint[])

-- name: forget_windows
-- params: now, limit
-- Deletes at most `limit` expired windows, and returns one row for each. Skips windows in use.
-- MATERIALIZED, or the plan may evaluate the subquery for each row, with other results.
WITH old AS MATERIALIZED (
  SELECT account_id, producer_id FROM rate_windows
  WHERE (last_slot + 105) * window_seconds
    < 100 * extract(epoch FROM coalesce($1::timestamptz, present()))
  LIMIT $2
  FOR UPDATE SKIP LOCKED
)
DELETE FROM rate_windows AS w USING old
WHERE w.account_id = old.account_id AND w.producer_id = old.producer_id
RETURNING 1
