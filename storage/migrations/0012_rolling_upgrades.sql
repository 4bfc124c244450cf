-- What lets gateways of two versions work on one database while they are exchanged one by one.

-- Whether gateways that do not know the migration cannot work with its tables. Those from before this
-- column refuse every migration that they do not know.
ALTER TABLE schema_migrations ADD COLUMN is_breaking boolean NOT NULL DEFAULT false;

-- The revision of each file in storage/functions that is in effect.
CREATE TABLE schema_functions (
  file_name text COLLATE "C" NOT NULL,
  revision int NOT NULL,
  applied_at timestamptz NOT NULL,
  CONSTRAINT schema_functions_key PRIMARY KEY (file_name)
);
