WITH queue AS (
  SELECT q.queue_id FROM queuegate.queues AS q WHERE q.queue_name = $1
)
INSERT INTO queuegate.messages (queue_id, visible_at, sent_at, message_id, body_md5, sender_id, body,
  priority)
SELECT queue.queue_id, s.at, s.at, gen_random_uuid(), decode(md5('x'), 'hex'), 'bench',
  repeat('x', 1024), $3::int::smallint
FROM queue, generate_series(1, $2::int) AS n,
  LATERAL (SELECT now() - interval '1 hour' * (1.01 - n / $2::float8) AS at) AS s
