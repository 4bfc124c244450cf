DROP INDEX CONCURRENTLY IF EXISTS fifo_groups_coming;
CREATE INDEX CONCURRENTLY fifo_groups_coming ON fifo_groups (queue_id, ready_at) WHERE comes_back;
