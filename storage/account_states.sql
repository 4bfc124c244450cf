-- Saved states of accounts: their names, and the rows that functions/states.sql copies.

-- name: take_name
-- params: now, account_id, state_name
-- Creates the state or locks the present one, whose rows are replaced.
INSERT INTO states (account_id, state_name, saved_at)
VALUES ($2, $3, coalesce($1::timestamptz, present()))
ON CONFLICT (account_id, state_name) DO UPDATE SET saved_at = excluded.saved_at
RETURNING state_id

-- name: clear_state
-- params: state_id
-- Deletes the rows of a state that is saved again.
DELETE FROM state_rows WHERE state_id = $1

-- name: save_state
-- params: state_id, account_id
-- Copies the rows of the account, all of the same instant. Returns the state.
WITH copied AS (
  INSERT INTO state_rows (state_id, table_name, content)
  SELECT $1, s.table_name, s.content FROM state_of($2) AS s
  RETURNING table_name
), counted AS (
  SELECT c.table_name, count(*) AS row_count FROM copied AS c GROUP BY c.table_name
)
UPDATE states SET
  counts = (SELECT coalesce(jsonb_object_agg(c.table_name, c.row_count), '{}') FROM counted AS c),
  schema_version = (SELECT max(m.migration_name) FROM schema_migrations AS m)
WHERE state_id = $1
RETURNING state_name, saved_at, counts

-- name: hold_state
-- params: now, account_id, state_name
-- Locks the state against changes until the transaction ends, or no row. Returns its age by the
-- account's clock, and whether its rows fit the tables.
SELECT s.state_id, s.state_name, s.saved_at, s.counts,
  coalesce($1::timestamptz, present()) - s.saved_at AS age,
  s.schema_version = (SELECT max(m.migration_name) FROM schema_migrations AS m) AS is_current
FROM states AS s WHERE s.account_id = $2 AND s.state_name = $3 FOR SHARE

-- name: hold_tables
-- params: patience
-- Locks the tables against all writers until the transaction ends.
SELECT hold_state_tables($1)

-- name: load_state
-- params: state_id, account_id, age
-- Replaces the rows of the account by those of the state.
SELECT load_state($1, $2, $3)

-- name: list_states
-- params: account_id
-- The states of an account, by name, without that of its seed.
SELECT s.state_name, s.saved_at, s.counts FROM states AS s
WHERE s.account_id = $1 AND s.state_name NOT LIKE '.%' ORDER BY s.state_name

-- name: list_accounts
-- params: account_id, state_name
-- The accounts with a state of that name: the account, or any if it is null.
SELECT s.account_id FROM states AS s
WHERE s.state_name = $2 AND ($1::text IS NULL OR s.account_id = $1) ORDER BY s.account_id

-- name: delete_state
-- params: account_id, state_name
-- Deletes a state with its rows; no row if there is none.
DELETE FROM states WHERE account_id = $1 AND state_name = $2 RETURNING state_id

-- name: objects
-- params: account_id
-- Live queues, topics and logs of the account, for caches.
SELECT 'queue' AS kind, q.queue_id AS object_id, q.region, false AS is_pattern
FROM queues AS q WHERE q.account_id = $1 AND q.deleted_at IS NULL
UNION ALL
SELECT 'topic', t.topic_id, t.region, t.is_pattern FROM topics AS t WHERE t.account_id = $1
UNION ALL
SELECT 'log', l.log_id, l.region, false FROM logs AS l
WHERE l.account_id = $1 AND l.deleted_at IS NULL
