-- Messages for queues that hold only so many and were full. They go in when there is room, in this
-- order: numbers are drawn while the queue is locked against all others that add to it.
CREATE TABLE waiting_messages (
  queue_id int NOT NULL,
  waiting_id bigint GENERATED ALWAYS AS IDENTITY,
  waiting_since timestamptz NOT NULL,
  message text COLLATE "C" NOT NULL, -- the row that the queue gets, as JSON
  CONSTRAINT waiting_messages_key PRIMARY KEY (queue_id, waiting_id)
) WITH (
  autovacuum_vacuum_scale_factor = 0.01,
  autovacuum_vacuum_threshold = 1000,
  autovacuum_vacuum_cost_delay = 0
);
