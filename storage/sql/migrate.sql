-- name: applied_migrations
-- params:
-- What was applied, in order. Names its schema, for it runs on connections without our search path.
SELECT migration_name, checksum FROM queuegate.schema_migrations ORDER BY migration_name;

-- name: lock_migrations
-- params: key_class, key
-- One process migrates at a time; the lock ends with the transaction. Two integers, so that the key
-- lies apart from every lock that takes one bigint.
SELECT pg_advisory_xact_lock($1::int, $2::int);

-- name: has_bookkeeping
-- params:
-- Whether the first migration was applied, asked without an error that would end the transaction.
SELECT to_regclass('queuegate.schema_migrations') IS NOT NULL;

-- name: use_schema
-- params: schema_name
-- For this transaction: files of migrations do not repeat the schema's name.
SELECT set_config('search_path', $1, true);

-- name: record_migration
-- params: migration_name, checksum
-- In the transaction of the migration itself: it is applied and recorded, or neither. The checksum
-- tells a later start that the file was changed. Always the clock of the database.
INSERT INTO queuegate.schema_migrations (migration_name, checksum, applied_at)
VALUES ($1, $2, clock_timestamp());
