-- Fair queues: standard queues with noisy message groups (docs/contract/sqs.md 2.5).

-- name: receive
-- params: now, queue_id, limit, retention, visibility_ms, noisy, froms, untils
-- Leases messages of one queue, quiet groups first: storage/functions/fairness.sql.
SELECT queue_id, sequence, message_id, receive_count, body, sender_id, attributes, system,
  sent_at_ms, first_received_at_ms, group_id, deduplication_id, leased_at, body_md5, reached
FROM fair_receive($1::timestamptz, $2::int, $3::int, $4::int, $5::int, $6::text[],
  $7::timestamptz[], $8::timestamptz[])

-- name: sample
-- params: now, queue_ids, most
-- By queue and message group (NULL: no group): messages in flight among the `most` last received of
-- the queue, and the last send among these and the 500 newest messages. A queue without either has
-- one row without a group and an instant.
SELECT q.queue_id, g.group_id, coalesce(g.in_flight, 0) AS in_flight, g.sent_at, clock.now
FROM (SELECT coalesce($1::timestamptz, present()) AS now) AS clock
CROSS JOIN unnest($2::int[]) AS q (queue_id)
LEFT JOIN LATERAL (
  -- By attributes first: extracting the group of each message takes half as long as all the rest.
  SELECT standard_group(s.system) AS group_id, sum(s.in_flight)::int AS in_flight,
    max(s.sent_at) AS sent_at
  FROM (
    SELECT m.system, count(*) FILTER (WHERE m.is_held) AS in_flight, max(m.sent_at) AS sent_at
    FROM (
      (SELECT h.system, h.sent_at, true AS is_held FROM messages AS h
       WHERE h.queue_id = q.queue_id AND h.receive_count > 0 AND h.visible_at > clock.now
       ORDER BY h.visible_at DESC LIMIT $3)
      UNION ALL
      (SELECT f.system, f.sent_at, false FROM messages AS f
       WHERE f.queue_id = q.queue_id AND f.receive_count = 0
       ORDER BY f.visible_at DESC LIMIT 500)) AS m
    GROUP BY m.system) AS s
  GROUP BY 1) AS g ON true
ORDER BY q.queue_id

-- name: backlogs
-- params: now, queue_ids, groups, received_from, fresh_from
-- For each group of a queue, in order: whether one of its messages is visible right of its cursor.
-- The scan ends after 2,000 messages and then assumes a backlog.
SELECT coalesce((
    SELECT bool_or(standard_group(m.system) = i.group_id) OR count(*) = 2000
    FROM (SELECT r.system FROM messages AS r
          WHERE r.queue_id = i.queue_id AND r.receive_count > 0
            AND r.visible_at >= i.received_from AND r.visible_at <= clock.now
          ORDER BY r.visible_at LIMIT 2000) AS m), false)
  OR coalesce((
    SELECT bool_or(standard_group(m.system) = i.group_id) OR count(*) = 2000
    FROM (SELECT f.system FROM messages AS f
          WHERE f.queue_id = i.queue_id AND f.receive_count = 0
            AND f.visible_at >= i.fresh_from AND f.visible_at <= clock.now
          ORDER BY f.visible_at LIMIT 2000) AS m), false) AS has_backlog
FROM (SELECT coalesce($1::timestamptz, present()) AS now) AS clock,
  unnest($2::int[], $3::text[], $4::timestamptz[], $5::timestamptz[])
    WITH ORDINALITY AS i (queue_id, group_id, received_from, fresh_from, place)
ORDER BY i.place

-- name: note
-- params: queue_ids
-- Notes that these queues have messages with groups.
UPDATE queues SET has_message_groups = true
WHERE queue_id = ANY($1::int[]) AND NOT has_message_groups

-- name: noted
-- params: most
-- The oldest live queues that had messages with groups, without priorities.
SELECT q.queue_id, q.account_id, q.region, q.queue_name FROM queues AS q
WHERE q.deleted_at IS NULL AND q.has_message_groups AND NOT q.has_priorities
ORDER BY q.queue_id LIMIT $1

-- name: quiet_depths
-- params: now, queue_ids, noisy_ids, noisy_groups, most
-- Counts messages of quiet groups among the `most` newest of each queue: visible, in flight,
-- delayed, and the age of the oldest visible one in seconds, 0 without one. Older messages are
-- mostly of noisy groups, which noisy_ids and noisy_groups name.
SELECT q.queue_id, d.visible, d.in_flight, d.delayed,
  coalesce(date_part('epoch', clock.now - d.oldest), 0) AS oldest_seconds
FROM (SELECT coalesce($1::timestamptz, present()) AS now) AS clock, unnest($2::int[]) AS q (queue_id),
LATERAL (
  SELECT ARRAY(SELECT n.group_id FROM unnest($3::int[], $4::text[]) AS n (queue_id, group_id)
               WHERE n.queue_id = q.queue_id) AS groups) AS noisy,
LATERAL (
  SELECT count(*) FILTER (WHERE m.visible_at <= clock.now) AS visible,
    count(*) FILTER (WHERE m.visible_at > clock.now AND m.receive_count > 0) AS in_flight,
    count(*) FILTER (WHERE m.visible_at > clock.now AND m.receive_count = 0) AS delayed,
    min(m.sent_at) FILTER (WHERE m.visible_at <= clock.now) AS oldest
  FROM (SELECT k.visible_at, k.receive_count, k.sent_at, k.system FROM messages AS k
        WHERE k.queue_id = q.queue_id ORDER BY k.sequence DESC LIMIT $5) AS m
  WHERE coalesce(standard_group(m.system) <> ALL(noisy.groups), true)) AS d
