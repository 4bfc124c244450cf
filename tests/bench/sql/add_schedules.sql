-- $2 schedules that fire into the queue of that name ($1), first at $3 and then every $4 seconds.
INSERT INTO queuegate.schedules (account_id, region, schedule_name, is_active, next_fire_at, due_at,
  catchup, catchup_limit, deletes_itself, window_seconds, max_attempts, target_kind, timing, target,
  target_bytes, spec, created_at, modified_at)
SELECT q.account_id, q.region, q.queue_name || '-' || n, true, $3, $3, false, 1, true, 0, 0, 'queue',
  json_build_object('kind', 'rate', 'seconds', $4::int,
    'anchor', to_char($3::timestamptz AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"')),
  json_build_object('kind', 'queue', 'account_id', q.account_id, 'region', q.region,
    'queue_name', q.queue_name, 'body', repeat('x', 1024), 'schedule_header', true),
  1200, '{}', now(), now()
FROM queuegate.queues AS q, generate_series(1, $2::int) AS n
WHERE q.queue_name = $1 AND q.deleted_at IS NULL
