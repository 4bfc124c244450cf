-- name: applied_migrations
-- params:
-- What was applied, in order. Names its schema, for it runs on connections without our search path;
-- takes the row as JSON, for a database from before has no is_breaking.
SELECT m.migration_name, m.checksum,
  coalesce((to_jsonb(m) ->> 'is_breaking')::boolean, true) AS is_breaking
FROM queuegate.schema_migrations AS m ORDER BY m.migration_name;

-- name: applied_functions
-- params:
-- The files of functions that are in effect, with their revisions.
SELECT file_name, revision FROM queuegate.schema_functions;

-- name: try_to_be_alone
-- params: key_class, key
-- One process migrates at a time: whether it is this one, until it says otherwise or its session
-- ends. Two integers, so that the key lies apart from every lock that takes one bigint.
SELECT pg_try_advisory_lock($1::int, $2::int);

-- name: let_others
-- params: key_class, key
-- Gives the lock back.
SELECT pg_advisory_unlock($1::int, $2::int);

-- name: use_schema
-- params: schema_name
-- For this session: files of migrations do not repeat the schema's name.
SELECT set_config('search_path', $1, false);

-- name: record_migration
-- params: migration_name, checksum
-- In the transaction of the migration itself: it is applied and recorded, or neither. The checksum
-- tells a later start that the file was changed. Always the clock of the database.
INSERT INTO queuegate.schema_migrations (migration_name, checksum, applied_at)
VALUES ($1, $2, clock_timestamp());

-- name: record_breaking
-- params: migration_name
-- In the same transaction: gateways that do not know the migration refuse the database from now on.
UPDATE queuegate.schema_migrations SET is_breaking = true WHERE migration_name = $1;

-- name: record_functions
-- params: file_name, revision
-- In the transaction that replaces the functions.
INSERT INTO queuegate.schema_functions AS f (file_name, revision, applied_at)
VALUES ($1, $2, clock_timestamp())
ON CONFLICT (file_name) DO UPDATE SET revision = excluded.revision, applied_at = excluded.applied_at;
