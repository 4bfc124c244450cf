-- Where everything of ours lives, and the list of what was applied.

CREATE SCHEMA IF NOT EXISTS queuegate;

CREATE TABLE schema_migrations (
  migration_name text COLLATE "C" NOT NULL,
  checksum text COLLATE "C" NOT NULL,
  applied_at timestamptz NOT NULL,
  CONSTRAINT schema_migrations_key PRIMARY KEY (migration_name)
);
