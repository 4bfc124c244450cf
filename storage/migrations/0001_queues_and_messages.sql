-- Queues, standard messages, FIFO messages with their groups, counters, move tasks.
-- Every key on a table of messages starts with queue_id, so that these tables can be
-- partitioned or distributed by it without a change to a statement.

CREATE TABLE queues (
  queue_id int GENERATED ALWAYS AS IDENTITY,
  account_id text COLLATE "C" NOT NULL,
  region text COLLATE "C" NOT NULL,
  queue_name text COLLATE "C" NOT NULL,
  is_fifo boolean NOT NULL,
  attributes jsonb NOT NULL DEFAULT '{}',
  tags jsonb NOT NULL DEFAULT '{}',
  dead_letter_arn text COLLATE "C",
  created_at timestamptz NOT NULL,
  modified_at timestamptz NOT NULL,
  purged_at timestamptz,
  deleted_at timestamptz,
  CONSTRAINT queues_key PRIMARY KEY (queue_id)
);
CREATE UNIQUE INDEX queues_live_name ON queues (account_id, region, queue_name)
  WHERE deleted_at IS NULL;
CREATE INDEX queues_deleted_name ON queues (account_id, region, queue_name, deleted_at)
  WHERE deleted_at IS NOT NULL;
CREATE INDEX queues_dead_letter ON queues (dead_letter_arn, queue_id)
  WHERE dead_letter_arn IS NOT NULL AND deleted_at IS NULL;

-- sequence is the order of sending; it stays when a message moves to a dead-letter queue.
CREATE SEQUENCE message_sequence AS bigint;
CREATE TABLE messages (
  sequence bigint NOT NULL DEFAULT nextval('message_sequence'),
  visible_at timestamptz NOT NULL,
  sent_at timestamptz NOT NULL,
  first_received_at timestamptz,
  queue_id int NOT NULL,
  receive_count int NOT NULL DEFAULT 0,
  message_id uuid NOT NULL,
  body_md5 bytea, -- of the body's UTF-8, kept so that receives need not work it out; 16 bytes
  sender_id text COLLATE "C" NOT NULL,
  body text COLLATE "C" NOT NULL,
  attributes text COLLATE "C",
  system text COLLATE "C",
  CONSTRAINT messages_key PRIMARY KEY (queue_id, sequence)
) WITH (
  autovacuum_vacuum_scale_factor = 0.01,
  autovacuum_vacuum_threshold = 5000,
  autovacuum_vacuum_insert_scale_factor = 0.2,
  -- Plans are pinned: statistics change nothing and cost a sample of bodies each time.
  autovacuum_analyze_threshold = 1000000,
  autovacuum_vacuum_cost_delay = 0
);
-- Two partial indexes instead of one: what was never received, and what was. A receive takes the
-- expired ones of the second first: they were sent before what lies untouched in the first.
CREATE INDEX messages_fresh ON messages (queue_id, visible_at) WHERE receive_count = 0;
CREATE INDEX messages_received ON messages (queue_id, visible_at) WHERE receive_count > 0;

CREATE SEQUENCE fifo_sequence AS bigint;
CREATE TABLE fifo_messages (
  sequence bigint NOT NULL,
  visible_at timestamptz NOT NULL,
  sent_at timestamptz NOT NULL,
  queue_id int NOT NULL,
  prior_count int NOT NULL DEFAULT 0,
  message_id uuid NOT NULL,
  group_id text COLLATE "C" NOT NULL,
  sender_id text COLLATE "C" NOT NULL,
  body text COLLATE "C" NOT NULL,
  attributes text COLLATE "C",
  system text COLLATE "C",
  deduplication_id text COLLATE "C",
  CONSTRAINT fifo_messages_key PRIMARY KEY (queue_id, group_id, sequence)
) WITH (
  autovacuum_vacuum_scale_factor = 0.01,
  autovacuum_vacuum_threshold = 5000,
  autovacuum_vacuum_cost_delay = 0
);
-- The delivery state of a group: a row exists while its group holds a message.
CREATE TABLE fifo_groups (
  queue_id int NOT NULL,
  group_id text COLLATE "C" NOT NULL,
  ready_at timestamptz NOT NULL,
  head_seq bigint NOT NULL,
  d_last bigint NOT NULL DEFAULT 0,
  d_seq bigint[] NOT NULL DEFAULT '{}',
  d_rc int[] NOT NULL DEFAULT '{}',
  d_until timestamptz[] NOT NULL DEFAULT '{}',
  d_first timestamptz[] NOT NULL DEFAULT '{}',
  CONSTRAINT fifo_groups_key PRIMARY KEY (queue_id, group_id)
) WITH (
  autovacuum_vacuum_scale_factor = 0.01,
  autovacuum_vacuum_threshold = 1000,
  autovacuum_vacuum_cost_delay = 0
);
-- Partial, so that only statements that repeat the condition can take it: one that looks for a
-- group by its key was planned over this index, when the table had been analyzed empty.
CREATE INDEX fifo_groups_ready ON fifo_groups (queue_id, ready_at) WHERE ready_at > '-infinity';
CREATE TABLE fifo_dedup (
  queue_id int NOT NULL,
  dedup_key uuid NOT NULL,
  message_id uuid NOT NULL,
  sequence bigint NOT NULL,
  expires_at timestamptz NOT NULL,
  CONSTRAINT fifo_dedup_key PRIMARY KEY (queue_id, dedup_key)
) WITH (
  autovacuum_vacuum_scale_factor = 0.01,
  autovacuum_vacuum_threshold = 1000,
  autovacuum_vacuum_cost_delay = 0
);
CREATE INDEX fifo_dedup_expires ON fifo_dedup (expires_at);

-- The exact number of messages of a queue is the sum of its deltas. Every statement that adds or
-- removes messages appends one; a worker folds them. Appending takes no lock that another waits for.
CREATE TABLE queue_deltas (
  queue_id int NOT NULL,
  delta bigint NOT NULL
) WITH (
  autovacuum_vacuum_scale_factor = 0.01,
  autovacuum_vacuum_threshold = 1000,
  autovacuum_vacuum_cost_delay = 0
);
CREATE INDEX queue_deltas_queue ON queue_deltas (queue_id);

-- A move task goes on batch by batch. Who moves a batch holds the row until the batch is committed,
-- so a crash gives the task back at once; next_batch_at paces it without an open transaction. The
-- task moves what was sent up to end_sequence: what it moved itself has a higher number.
CREATE TABLE move_tasks (
  task_id uuid NOT NULL,
  source_queue_id int NOT NULL,
  source_arn text COLLATE "C" NOT NULL,
  destination_arn text COLLATE "C",
  max_per_second int,
  status text COLLATE "C" NOT NULL,
  failure_reason text,
  to_move_count bigint NOT NULL,
  moved_count bigint NOT NULL DEFAULT 0,
  started_at timestamptz NOT NULL,
  finished_at timestamptz,
  next_batch_at timestamptz NOT NULL,
  last_sequence bigint NOT NULL DEFAULT 0,
  end_sequence bigint NOT NULL,
  CONSTRAINT move_tasks_key PRIMARY KEY (source_queue_id, task_id),
  CONSTRAINT move_tasks_status CHECK (status IN ('RUNNING', 'COMPLETED', 'CANCELLED', 'FAILED'))
);
CREATE UNIQUE INDEX move_tasks_one_active ON move_tasks (source_queue_id) WHERE status = 'RUNNING';
CREATE INDEX move_tasks_active ON move_tasks (next_batch_at) WHERE status = 'RUNNING';

-- Small facts that all processes share: how far the clock was moved, key material.
CREATE TABLE settings (
  setting_name text COLLATE "C" NOT NULL,
  value jsonb NOT NULL,
  CONSTRAINT settings_key PRIMARY KEY (setting_name)
);
