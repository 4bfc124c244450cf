-- API keys and access keys. `now`: NULL means the clock of the database. Only `live`, `sealed`,
-- `sample` and `all_sealed` read hashes or encrypted secrets.

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
-- Encrypted secrets of at most `limit` keys that are not revoked: the encryption key of one is that
-- of all.
SELECT access_key, secret FROM keys WHERE secret IS NOT NULL AND revoked_at IS NULL LIMIT $1

-- name: sample
-- params:
-- One encrypted secret. The lock conflicts with `hold`, so that the common encryption key stays. It
-- is the weakest one, because several sessions may read the same row.
SELECT access_key, secret FROM keys WHERE secret IS NOT NULL AND revoked_at IS NULL LIMIT 1
FOR KEY SHARE

-- name: hold
-- params:
-- Locks keys against creation, changes and samples until the transaction ends. Verification
-- continues.
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
-- Whether a key that is not revoked is an administrator's.
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
-- Sets the policy of a key of an account (NULL: of any), NULL for none; no row if there is no such
-- key.
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
