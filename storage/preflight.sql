-- name: server_clock
-- params:
-- The database's clock, to compare with this machine's.
SELECT clock_timestamp();

-- name: backend
-- params:
-- The process that serves this connection. A pooler in between reports another one.
SELECT pg_backend_pid();

-- name: mark_session
-- params: mark
-- Marks the session; no other session has the mark.
SELECT set_config('queuegate.session', $1, FALSE);

-- name: session
-- params:
-- The state of a session in a later transaction: its mark and its start settings.
SELECT current_setting('queuegate.session', TRUE) AS mark, current_setting('search_path') AS path;

-- name: place
-- params:
-- The database, the same over every way to it.
SELECT current_database(), pg_postmaster_start_time();

-- name: role
-- params:
-- The search_path with which sessions of this role begin, whatever was set since.
SELECT reset_val AS path, quote_ident(current_user) AS role FROM pg_settings WHERE name = 'search_path';

-- name: conditional_policies
-- params:
-- The policies with conditions of queues, topics and keys, with their owners.
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
