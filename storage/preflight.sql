-- name: server_clock
-- params:
-- For the check of the clocks: how far this machine and the database are apart.
SELECT clock_timestamp();

-- name: backend
-- params:
-- The process that serves this connection. A pooler in between has told the client another one.
SELECT pg_backend_pid();

-- name: mark_session
-- params: mark
-- Leaves a mark on the session, which stays with it and with no other one.
SELECT set_config('queuegate.session', $1, FALSE);

-- name: session
-- params:
-- What is left of a session in a later transaction: its mark, and what it was begun with.
SELECT current_setting('queuegate.session', TRUE) AS mark, current_setting('search_path') AS path;

-- name: conditional_policies
-- params:
-- The policies of queues, topics and keys that have conditions, with the name of what has them.
SELECT format('arn:aws:sqs:%s:%s:%s', region, account_id, queue_name) AS of,
  attributes ->> 'Policy' AS policy, false AS is_of_key
FROM queuegate.queues WHERE deleted_at IS NULL AND attributes ->> 'Policy' LIKE '%"Condition"%'
UNION ALL
SELECT format('arn:aws:sns:%s:%s:%s', region, account_id, topic_name), attributes ->> 'Policy', false
FROM queuegate.topics WHERE attributes ->> 'Policy' LIKE '%"Condition"%'
UNION ALL
SELECT format('key %s of account %s', key_id, account_id), policy, true
FROM queuegate.keys WHERE revoked_at IS NULL AND policy LIKE '%"Condition"%'
ORDER BY 1;
