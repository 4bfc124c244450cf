-- What waits in queues with priorities, for people who look at them.

-- name: priority_depths
-- params: now, queue_id, most
-- For each priority, the most urgent first, how many messages can be received, counted up to `most`,
-- and since when the one that comes next of those has waited; NULL: there is none.
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
