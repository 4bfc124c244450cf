-- Keys that clients show. `now`: NULL means the clock of the database. No statement but `live` reads
-- a hash, and nothing has the secret itself.

-- name: create
-- params: now, secret_hash, account_id, key_name, rate_requests, rate_seconds, expires_at
-- The new key of kind api, or no row when one of the account that is not revoked has the name.
INSERT INTO keys (kind, secret_hash, account_id, key_name, rate_requests, rate_seconds, expires_at,
  created_at)
SELECT 'api', $2::bytea, $3, $4, $5, $6, $7, coalesce($1::timestamptz, present())
ON CONFLICT (account_id, key_name) WHERE revoked_at IS NULL DO NOTHING
RETURNING key_id, kind, account_id, key_name, rate_requests, rate_seconds, created_at, expires_at,
  revoked_at

-- name: count
-- params:
-- How many are not revoked: each process keeps all of them.
SELECT count(*) FROM keys WHERE revoked_at IS NULL

-- name: page
-- params: account_id, after_id, with_revoked, limit
-- Keys of an account (NULL: of all), by number, behind one of them.
SELECT key_id, kind, account_id, key_name, rate_requests, rate_seconds, created_at, expires_at,
  revoked_at
FROM keys
WHERE ($1::text IS NULL OR account_id = $1) AND key_id > $2 AND ($3 OR revoked_at IS NULL)
ORDER BY key_id LIMIT $4

-- name: revoke
-- params: now, account_id, key_id
-- Ends a key of an account (NULL: of any), or no row if there is none. One that was revoked keeps
-- the instant of that.
UPDATE keys SET revoked_at = coalesce(revoked_at, $1::timestamptz, present())
WHERE key_id = $3 AND ($2::text IS NULL OR account_id = $2)
RETURNING key_id, kind, account_id, key_name, rate_requests, rate_seconds, created_at, expires_at,
  revoked_at

-- name: live
-- params: key_ids
-- What processes check keys with: those of these numbers (NULL: all) that are not revoked.
SELECT key_id, kind, account_id, key_name, rate_requests, rate_seconds, created_at, expires_at,
  revoked_at, secret_hash
FROM keys
WHERE revoked_at IS NULL AND kind = 'api' AND ($1::bigint[] IS NULL OR key_id = ANY($1))

-- name: forget
-- params: now, seconds, limit
-- Deletes up to so many keys that were revoked so long ago, and returns one row for each.
-- MATERIALIZED, or the plan may look for them once for each row, and find others.
WITH old AS MATERIALIZED (
  SELECT key_id FROM keys
  WHERE revoked_at < coalesce($1::timestamptz, present()) - make_interval(secs => $2)
  ORDER BY key_id LIMIT $3 FOR UPDATE SKIP LOCKED
)
DELETE FROM keys AS k USING old WHERE k.key_id = old.key_id
RETURNING 1
