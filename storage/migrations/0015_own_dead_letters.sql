-- Dead-letter queues that were made for one queue.

-- The queue whose own dead-letter queue this is; NULL: nobody's.
ALTER TABLE queues ADD COLUMN parent_id int;
-- However many receivers want one at once, a queue has one.
CREATE UNIQUE INDEX queues_parent ON queues (parent_id)
  WHERE parent_id IS NOT NULL AND deleted_at IS NULL;
-- Those that a worker looks through for messages that were delivered often enough.
CREATE INDEX queues_max_deliveries ON queues (queue_id)
  WHERE max_deliveries IS NOT NULL AND deleted_at IS NULL;
