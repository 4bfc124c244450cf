-- Messages with a priority, in the order in which each priority is received: what was received
-- before and is visible again comes first. Those that have expired are passed over without a look at
-- the table.
DROP INDEX CONCURRENTLY IF EXISTS messages_urgent;
CREATE INDEX CONCURRENTLY messages_urgent
  ON messages (queue_id, priority, least(receive_count, 1), visible_at, sequence,
    coalesce(expires_at, 'infinity')) WHERE priority IS NOT NULL;
-- What removes messages that have expired goes along these, and never through the living.
DROP INDEX CONCURRENTLY IF EXISTS messages_expiring;
CREATE INDEX CONCURRENTLY messages_expiring ON messages (queue_id, expires_at)
  WHERE expires_at IS NOT NULL;
DROP INDEX CONCURRENTLY IF EXISTS fifo_messages_expiring;
CREATE INDEX CONCURRENTLY fifo_messages_expiring ON fifo_messages (queue_id, expires_at)
  WHERE expires_at IS NOT NULL;
