-- The oldest and the newest message of a queue, for display.

-- name: standard
-- params: now, queue_id
-- Send times of the first and the last message in send order: two probes of the key, past expired
-- messages not yet removed.
SELECT
  (SELECT m.sent_at FROM messages AS m
   WHERE m.queue_id = $2::int AND (m.expires_at IS NULL OR m.expires_at > clock.now)
   ORDER BY m.sequence LIMIT 1) AS oldest_at,
  (SELECT m.sent_at FROM messages AS m
   WHERE m.queue_id = $2::int AND (m.expires_at IS NULL OR m.expires_at > clock.now)
   ORDER BY m.sequence DESC LIMIT 1) AS newest_at,
  clock.now
FROM (SELECT coalesce($1::timestamptz, present()) AS now) AS clock

-- name: fifo
-- params: now, queue_id, most_groups
-- As `standard` over the groups, whose messages are ordered: two probes of each. Of more than
-- `most_groups` groups, those that have been ready the longest.
SELECT min(first.sent_at) AS oldest_at, max(last.sent_at) AS newest_at, coalesce($1::timestamptz, present()) AS now
FROM (
  SELECT g.queue_id, g.group_id FROM fifo_groups AS g
  WHERE g.queue_id = $2::int AND g.ready_at > '-infinity'
  ORDER BY g.ready_at LIMIT $3::int) AS g,
LATERAL (
  SELECT m.sent_at FROM fifo_messages AS m
  WHERE m.queue_id = g.queue_id AND m.group_id = g.group_id
  ORDER BY m.sequence LIMIT 1) AS first,
LATERAL (
  SELECT m.sent_at FROM fifo_messages AS m
  WHERE m.queue_id = g.queue_id AND m.group_id = g.group_id
  ORDER BY m.sequence DESC LIMIT 1) AS last
