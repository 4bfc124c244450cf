-- Its functions are in storage/functions/fifo.sql.

-- A receive with a ReceiveRequestAttemptId: what it returned, to be returned again.
CREATE TABLE fifo_attempts (
  queue_id int NOT NULL,
  attempt_id text COLLATE "C" NOT NULL,
  expires_at timestamptz NOT NULL,
  group_ids text[] COLLATE "C" NOT NULL,
  sequences bigint[] NOT NULL,
  receive_counts int[] NOT NULL,
  untils timestamptz[] NOT NULL,
  CONSTRAINT fifo_attempts_key PRIMARY KEY (queue_id, attempt_id)
);
CREATE INDEX fifo_attempts_expires ON fifo_attempts (expires_at);
