-- How many messages have been committed to the queue of that name, of which none is consumed; and
-- the instant.
SELECT coalesce(sum(d.delta), 0)::int, extract(epoch FROM clock_timestamp())::float8
FROM queuegate.queues AS q LEFT JOIN queuegate.queue_deltas AS d ON d.queue_id = q.queue_id
WHERE q.queue_name = $1 AND q.deleted_at IS NULL
