-- name: applied_migrations
-- params:
-- Applied migrations, in order. Names its schema, because it runs on connections without our search
-- path. Takes the row as JSON, because an older database has no is_breaking.
SELECT m.migration_name, m.checksum,
  coalesce((to_jsonb(m) ->> 'is_breaking')::boolean, true) AS is_breaking
FROM queuegate.schema_migrations AS m ORDER BY m.migration_name;

-- name: applied_functions
-- params:
-- The applied files of functions, with their revisions.
SELECT file_name, revision FROM queuegate.schema_functions;

-- name: try_to_be_alone
-- params: key_class, key
-- Tries to take the migration lock, for one process at a time, until it is released or the session
-- ends. Two integers, so that the key differs from every lock with one bigint.
SELECT pg_try_advisory_lock($1::int, $2::int);

-- name: let_others
-- params: key_class, key
-- Releases the migration lock.
SELECT pg_advisory_unlock($1::int, $2::int);

-- name: use_schema
-- params: schema_name
-- For this session: files of migrations do not repeat the schema's name.
SELECT set_config('search_path', $1, false);

-- name: record_migration
-- params: migration_name, checksum
-- In the transaction of the migration: it is applied and recorded, or neither. The checksum detects
-- a later change of the file. Always the clock of the database.
INSERT INTO queuegate.schema_migrations (migration_name, checksum, applied_at)
VALUES ($1, $2, clock_timestamp());

-- name: record_breaking
-- params: migration_name
-- In the same transaction: gateways without the migration refuse the database from now on.
UPDATE queuegate.schema_migrations SET is_breaking = true WHERE migration_name = $1;

-- name: record_functions
-- params: file_name, revision
-- In the transaction that replaces the functions.
INSERT INTO queuegate.schema_functions AS f (file_name, revision, applied_at)
VALUES ($1, $2, clock_timestamp())
ON CONFLICT (file_name) DO UPDATE SET revision = excluded.revision, applied_at = excluded.applied_at;
