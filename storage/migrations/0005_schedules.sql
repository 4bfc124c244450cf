-- Schedules: rules that send to queues and topics at given times, and what of that has to be repeated.

-- Groups of EventBridge Scheduler (contract/scheduler.md 4.1). Schedules of the native API have none.
CREATE TABLE schedule_groups (
  group_id int GENERATED ALWAYS AS IDENTITY,
  account_id text COLLATE "C" NOT NULL,
  region text COLLATE "C" NOT NULL,
  group_name text COLLATE "C" NOT NULL,
  tags json NOT NULL DEFAULT '{}', -- json keeps the order in which they were added
  is_deleting boolean NOT NULL DEFAULT false, -- until a worker has removed its schedules
  client_token text COLLATE "C",
  created_at timestamptz NOT NULL,
  modified_at timestamptz NOT NULL,
  CONSTRAINT schedule_groups_key PRIMARY KEY (group_id)
);
CREATE UNIQUE INDEX schedule_groups_name ON schedule_groups (account_id, region, group_name);
CREATE INDEX schedule_groups_deleting ON schedule_groups (group_id) WHERE is_deleting;

-- One row for each schedule, whichever API it belongs to. `next_fire_at` is the next time that its
-- rule gives, `due_at` when it is fired: later by a draw if it has a flexible window. Both are NULL
-- when no time is left.
CREATE TABLE schedules (
  schedule_id bigint GENERATED ALWAYS AS IDENTITY,
  account_id text COLLATE "C" NOT NULL,
  region text COLLATE "C" NOT NULL,
  group_id int,
  schedule_name text COLLATE "C" NOT NULL,
  is_active boolean NOT NULL, -- false: paused, by somebody or after too many failures
  next_fire_at timestamptz,
  due_at timestamptz,
  catchup boolean NOT NULL, -- whether missed times are made up for, catchup_limit at most
  catchup_limit int NOT NULL,
  failure_threshold int, -- failures in a row after which it is paused; NULL: never
  deletes_itself boolean NOT NULL, -- after its last time
  window_seconds int NOT NULL,
  starts_at timestamptz,
  ends_at timestamptz,
  max_attempts int NOT NULL, -- repetitions of an invocation that failed
  max_age_seconds int,
  failure_count int NOT NULL DEFAULT 0, -- in a row
  last_error text,
  last_fired_at timestamptz,
  last_scheduled_for timestamptz,
  fired_count bigint NOT NULL DEFAULT 0,
  skipped_count bigint NOT NULL DEFAULT 0, -- missed times beyond catchup_limit
  created_at timestamptz NOT NULL,
  modified_at timestamptz NOT NULL,
  client_token text COLLATE "C",
  target_kind text COLLATE "C" NOT NULL,
  timing json NOT NULL,
  target json NOT NULL,
  target_bytes int NOT NULL,
  dead_letter json,
  spec json NOT NULL, -- as its API reads it back
  CONSTRAINT schedules_key PRIMARY KEY (schedule_id),
  CONSTRAINT schedules_group FOREIGN KEY (group_id) REFERENCES schedule_groups,
  CONSTRAINT schedules_target_kind CHECK (target_kind IN ('queue', 'topic')),
  CONSTRAINT schedules_due CHECK ((next_fire_at IS NULL) = (due_at IS NULL))
) WITH (
  autovacuum_vacuum_scale_factor = 0.01,
  autovacuum_vacuum_threshold = 1000,
  autovacuum_vacuum_cost_delay = 0
);
CREATE UNIQUE INDEX schedules_name
  ON schedules (account_id, region, coalesce(group_id, 0), schedule_name);
CREATE INDEX schedules_of_group ON schedules (group_id) WHERE group_id IS NOT NULL;
CREATE INDEX schedules_due ON schedules (due_at, schedule_id)
  WHERE is_active AND due_at IS NOT NULL;

-- Invocations that failed and are tried again. All that they need is kept here: they outlive changes
-- of their schedule, and its end.
CREATE TABLE schedule_invocations (
  invocation_id bigint GENERATED ALWAYS AS IDENTITY,
  schedule_id bigint NOT NULL,
  account_id text COLLATE "C" NOT NULL,
  region text COLLATE "C" NOT NULL,
  group_name text COLLATE "C",
  schedule_name text COLLATE "C" NOT NULL,
  scheduled_for timestamptz NOT NULL,
  execution_id uuid NOT NULL,
  attempt_count int NOT NULL, -- attempts that were made
  max_attempts int NOT NULL,
  expires_at timestamptz NOT NULL,
  due_at timestamptz NOT NULL,
  created_at timestamptz NOT NULL,
  target json NOT NULL,
  dead_letter json,
  CONSTRAINT schedule_invocations_key PRIMARY KEY (invocation_id)
) WITH (
  autovacuum_vacuum_scale_factor = 0.01,
  autovacuum_vacuum_threshold = 1000,
  autovacuum_vacuum_cost_delay = 0
);
CREATE INDEX schedule_invocations_due ON schedule_invocations (due_at, invocation_id);
