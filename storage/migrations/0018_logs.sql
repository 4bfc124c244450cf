-- Logs: records by partition and offset, and what groups of readers have done with them. Records
-- never change; what a group knows of a partition is one row of its own.

CREATE TABLE logs (
  log_id int GENERATED ALWAYS AS IDENTITY,
  account_id text COLLATE "C" NOT NULL,
  region text COLLATE "C" NOT NULL,
  log_name text COLLATE "C" NOT NULL,
  created_at timestamptz NOT NULL,
  partition_count int, -- shared by all keys; NULL: each key has a partition of its own
  next_partition int NOT NULL DEFAULT 0, -- also how many there are: none goes before its log does
  retain_consumed_seconds int, -- NULL: that all groups have read something is no reason to drop it
  max_age_seconds int,
  max_bytes bigint,
  deleted_at timestamptz,
  CONSTRAINT logs_key PRIMARY KEY (log_id)
);
CREATE UNIQUE INDEX logs_live_name ON logs (account_id, region, log_name)
  WHERE deleted_at IS NULL;
CREATE INDEX logs_deleted ON logs (log_id) WHERE deleted_at IS NOT NULL;

-- Whoever appends locks the rows of its partitions in the order of their ids, takes `next_offset`,
-- and commits: so whoever reads an offset can read all before it. Updates touch no index.
CREATE TABLE log_partitions (
  partition_id bigint GENERATED ALWAYS AS IDENTITY,
  log_id int NOT NULL,
  number int NOT NULL, -- from 0 in each log, in the order of the ids
  partition_key text COLLATE "C", -- NULL: keys share the partitions of this log
  start_offset bigint NOT NULL DEFAULT 0, -- of the first record that is kept
  swept_offset bigint NOT NULL DEFAULT 0, -- records below it are gone, others below the start will be
  next_offset bigint NOT NULL DEFAULT 0,
  gap_count bigint NOT NULL DEFAULT 0, -- of records in between that were deleted
  byte_count bigint NOT NULL DEFAULT 0, -- of the payloads and metadata that are kept
  last_published_at timestamptz NOT NULL DEFAULT '-infinity',
  is_removed boolean NOT NULL DEFAULT false, -- with its log; its records go later
  CONSTRAINT log_partitions_key PRIMARY KEY (partition_id),
  CONSTRAINT log_partitions_number UNIQUE (log_id, number),
  -- By the key first: who asks for numbers on an empty table would be planned to go by it else.
  CONSTRAINT log_partitions_partition_key UNIQUE (partition_key, log_id)
) WITH (
  fillfactor = 40,
  autovacuum_vacuum_scale_factor = 0.01,
  autovacuum_vacuum_threshold = 1000,
  autovacuum_analyze_threshold = 1000000,
  autovacuum_vacuum_cost_delay = 0
);

CREATE INDEX log_partitions_unswept ON log_partitions (partition_id)
  WHERE swept_offset < start_offset OR is_removed;

CREATE TABLE log_records (
  partition_id bigint NOT NULL,
  record_offset bigint NOT NULL,
  published_at timestamptz NOT NULL, -- never before that of a lower offset
  only_group_id int, -- it is for that group alone, all others go over it
  record_key text COLLATE "C", -- NULL: it is that of the partition
  record_id text COLLATE "C", -- NULL: its publisher gave none
  metadata text COLLATE "C", -- an object of texts, as JSON
  failure text COLLATE "C", -- of a dead letter: what became of it before, as JSON
  payload bytea NOT NULL,
  CONSTRAINT log_records_key PRIMARY KEY (partition_id, record_offset)
) WITH (
  autovacuum_vacuum_scale_factor = 0.01,
  autovacuum_vacuum_threshold = 5000,
  autovacuum_vacuum_insert_scale_factor = 0.2,
  autovacuum_analyze_threshold = 1000000,
  autovacuum_vacuum_cost_delay = 0
);
-- Not unique: that an id comes once is looked for under the lock of its partition, and what was
-- purged may lie there for a while.
CREATE INDEX log_records_id ON log_records (partition_id, record_id)
  WHERE record_id IS NOT NULL;

CREATE TABLE log_groups (
  group_id int GENERATED ALWAYS AS IDENTITY,
  log_id int NOT NULL,
  group_name text COLLATE "C" NOT NULL,
  created_at timestamptz NOT NULL,
  start_at timestamptz NOT NULL, -- records before it are none of its; -infinity: all are
  settings jsonb NOT NULL DEFAULT '{}', -- defaults left out
  generation bigint NOT NULL DEFAULT 0, -- how often subscribers came or went
  live_subscribers int NOT NULL DEFAULT 0,
  position_count int NOT NULL DEFAULT 0, -- it has a position in all partitions of lower numbers
  CONSTRAINT log_groups_key PRIMARY KEY (group_id),
  CONSTRAINT log_groups_group_name UNIQUE (log_id, group_name)
) WITH (
  fillfactor = 40,
  autovacuum_vacuum_scale_factor = 0.01,
  autovacuum_vacuum_threshold = 1000,
  autovacuum_vacuum_cost_delay = 0
);

CREATE TABLE log_subscribers (
  group_id int NOT NULL,
  subscriber_name text COLLATE "C" NOT NULL,
  session bigint NOT NULL,
  live_until timestamptz NOT NULL,
  balanced_generation bigint NOT NULL DEFAULT -1, -- what its partitions were chosen for
  balanced_partitions int NOT NULL DEFAULT 0,
  is_short boolean NOT NULL DEFAULT false, -- it lacks some of its share: no more were free
  CONSTRAINT log_subscribers_key PRIMARY KEY (group_id, subscriber_name)
) WITH (
  fillfactor = 40,
  autovacuum_vacuum_scale_factor = 0.01,
  autovacuum_vacuum_threshold = 1000,
  autovacuum_vacuum_cost_delay = 0
);
CREATE INDEX log_subscribers_live_until ON log_subscribers (group_id, live_until);

-- What a group has done with a partition (storage/logs/positions.py says what the columns mean).
-- There is none for a partition that the group never looked at.
CREATE TABLE log_positions (
  group_id int NOT NULL,
  partition_id bigint NOT NULL,
  number int NOT NULL, -- of the partition
  watermark bigint NOT NULL DEFAULT -1, -- all up to it is done
  head bigint NOT NULL DEFAULT -1, -- nothing beyond it was ever delivered
  deliveries bigint NOT NULL DEFAULT 0, -- a number for each
  barrier_until timestamptz,
  spans bigint[] NOT NULL DEFAULT '{}', -- between the two
  held_by text COLLATE "C", -- a subscriber; NULL: it is free
  held_since bigint NOT NULL DEFAULT 0, -- after how many deliveries whoever holds it got it
  CONSTRAINT log_positions_key PRIMARY KEY (group_id, partition_id)
) WITH (
  fillfactor = 40,
  autovacuum_vacuum_scale_factor = 0.01,
  autovacuum_vacuum_threshold = 1000,
  autovacuum_analyze_threshold = 1000000,
  autovacuum_vacuum_cost_delay = 0
);
CREATE INDEX log_positions_held_by ON log_positions (group_id, held_by, number);
