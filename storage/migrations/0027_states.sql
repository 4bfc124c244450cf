-- States of accounts that `queuegate save` keeps: each row of each table, as JSON.
CREATE TABLE states (
  state_id bigint GENERATED ALWAYS AS IDENTITY,
  account_id text COLLATE "C" NOT NULL,
  state_name text COLLATE "C" NOT NULL,
  saved_at timestamptz NOT NULL, -- by the account's clock
  schema_version text COLLATE "C" NOT NULL DEFAULT '', -- the last migration before the rows were saved
  counts jsonb NOT NULL DEFAULT '{}', -- rows by table
  CONSTRAINT states_key PRIMARY KEY (state_id),
  CONSTRAINT states_name UNIQUE (account_id, state_name)
);
CREATE TABLE state_rows (
  state_id bigint NOT NULL,
  table_name text COLLATE "C" NOT NULL,
  position bigint GENERATED ALWAYS AS IDENTITY,
  content json NOT NULL,
  CONSTRAINT state_rows_key PRIMARY KEY (state_id, table_name, position),
  CONSTRAINT state_rows_state FOREIGN KEY (state_id) REFERENCES states ON DELETE CASCADE
);
