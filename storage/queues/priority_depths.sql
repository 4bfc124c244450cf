-- Depths of queues with priorities, for display.

-- name: priority_depths
-- params: now, queue_id, most
-- For each priority, most urgent first: receivable messages, counted up to `most`, and the send
-- time of the next one; NULL: none.
SELECT level.priority,
  (SELECT count(*) FROM (
    SELECT 1 FROM messages AS m
    WHERE m.queue_id = $2::int AND m.priority = level.priority
      AND least(m.receive_count, 1) = 1 AND m.visible_at <= clock.now
      AND coalesce(m.expires_at, 'infinity') > clock.now
    LIMIT $3::int) AS r)
  + (SELECT count(*) FROM (
    SELECT 1 FROM messages AS m
    WHERE m.queue_id = $2::int AND m.priority = level.priority
      AND least(m.receive_count, 1) = 0 AND m.visible_at <= clock.now
      AND coalesce(m.expires_at, 'infinity') > clock.now
    LIMIT $3::int) AS f) AS visible,
  least(
    (SELECT m.sent_at FROM messages AS m
     WHERE m.queue_id = $2::int AND m.priority = level.priority
       AND least(m.receive_count, 1) = 1 AND m.visible_at <= clock.now
       AND coalesce(m.expires_at, 'infinity') > clock.now
     ORDER BY m.visible_at LIMIT 1),
    (SELECT m.sent_at FROM messages AS m
     WHERE m.queue_id = $2::int AND m.priority = level.priority
       AND least(m.receive_count, 1) = 0 AND m.visible_at <= clock.now
       AND coalesce(m.expires_at, 'infinity') > clock.now
     ORDER BY m.visible_at LIMIT 1)) AS oldest_at,
  clock.now
FROM (SELECT coalesce($1::timestamptz, present()) AS now) AS clock,
  unnest('{10,9,8,7,6,5,4,3,2,1,0}'::smallint[]) AS level (priority)
