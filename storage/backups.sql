-- What a backup reads and a restore sets besides the rows of tables.

-- name: prepare_session
-- params:
-- Settings until the transaction ends: values as text that every version and time zone reads alike,
-- and no time limit but for locks. The join leaves out what an older server does not have.
SELECT set_config(v.name, v.value, true) FROM (VALUES
  ('DateStyle', 'ISO'), ('IntervalStyle', 'postgres'), ('TimeZone', 'UTC'), ('bytea_output', 'hex'),
  ('extra_float_digits', '3'), ('statement_timeout', '0'), ('transaction_timeout', '0'),
  ('idle_in_transaction_session_timeout', '0'), ('lock_timeout', '30s')
) AS v (name, value) JOIN pg_settings AS s ON s.name = v.name

-- name: tables
-- params: schema_name
-- The tables of a backup, and those that they refer to. Not those of migrations, nor unlogged ones
-- (rates of the last seconds), nor recordings of events, whose triggers are not in a backup.
-- `has_data`: it has or had rows of users.
SELECT c.relname::text AS table_name,
  ARRAY(SELECT a.attname::text FROM pg_attribute AS a
    WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = ''
    ORDER BY a.attnum) AS columns,
  ARRAY(SELECT k.confrelid::regclass::text FROM pg_constraint AS k
    WHERE k.conrelid = c.oid AND k.contype = 'f' AND k.confrelid <> c.oid) AS parents,
  pg_relation_size(c.oid) > 0 AND c.relname <> 'settings' AS has_data, now() AS taken_at
FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE n.nspname = $1 AND c.relkind = 'r' AND c.relpersistence = 'p'
  AND c.relname NOT IN ('schema_migrations', 'schema_functions', 'event_recordings')

-- name: sequences
-- params: schema_name
-- The last number of each sequence that was used. Sequences know no snapshot: these numbers are not
-- lower than those in rows of an earlier snapshot. Another server has another clock, so the offset of
-- this one stays.
SELECT sequencename, last_value FROM pg_sequences
WHERE schemaname = $1 AND last_value IS NOT NULL AND sequencename <> 'clock_offset'
ORDER BY sequencename

-- name: set_sequences
-- params: schema_name, names, values
-- Continues the sequences. Messages get numbers far beyond those that were given out after the
-- backup: a receipt handle of then must not delete another message.
SELECT setval(format('%I.%I', $1::text, v.name)::regclass, v.value + CASE
  WHEN v.name IN ('message_sequence', 'fifo_sequence') THEN 1000000000000 ELSE 0 END)
FROM unnest($2::text[], $3::bigint[]) AS v (name, value)

-- name: sessions
-- params:
-- The number of other sessions of gateways, workers and commands in this database. Not those that
-- only check the connection at a start, some of which are ours and end about now.
SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
  AND pid <> pg_backend_pid() AND application_name LIKE 'queuegate%'
  AND application_name <> 'queuegate start'

-- name: drop_schema
-- params:
-- Drops all data of Queuegate in this database.
DROP SCHEMA IF EXISTS queuegate CASCADE
