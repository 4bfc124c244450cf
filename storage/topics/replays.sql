-- Replays of the archives of FIFO topics, at most one for each subscription.

-- name: begin
-- params: now, subscription_id, topic_id, starting_at, ending_at, base_url
-- Creates a replay in place of an ended one; no row while one is active. Its number is drawn here:
-- later publishes have a higher one.
INSERT INTO replays AS r (subscription_id, topic_id, status, starting_at, ending_at, base_url,
  begun_sequence, begun_at, due_at)
SELECT $2, $3, 'Pending', $4, $5, $6, nextval('topic_sequence'), clock.now, clock.now
FROM (SELECT coalesce($1::timestamptz, present()) AS now) AS clock
ON CONFLICT (subscription_id) DO UPDATE
SET status = 'Pending', failure_reason = NULL, starting_at = excluded.starting_at,
  ending_at = excluded.ending_at, base_url = excluded.base_url,
  begun_sequence = excluded.begun_sequence, last_sequence = 0, upto_sequence = 0, upto_at = NULL,
  replayed_count = 0, begun_at = excluded.begun_at, finished_at = NULL, due_at = excluded.due_at
WHERE r.status NOT IN ('Pending', 'In progress')
RETURNING subscription_id

-- name: remove
-- params: subscription_id
-- Ends a replay and deletes its status.
DELETE FROM replays WHERE subscription_id = $1

-- name: status
-- params: subscription_id
-- The status of the subscription's replay; no row without one.
SELECT status FROM replays WHERE subscription_id = $1

-- name: claim
-- params: now, account_ids, are_chosen
-- Locks the most overdue replay; skips locked ones. Unconfirmed endpoints get nothing. The
-- subscription is locked, too, by its key: the second change of a row in a transaction checks its
-- foreign key, and would wait for a deletion of the subscription that waits for the replay.
-- Columns in the order of `TopicReplay`.
SELECT r.subscription_id, r.topic_id, r.starting_at, r.ending_at, r.base_url, r.begun_sequence,
  r.last_sequence, r.upto_sequence, r.finished_at IS NOT NULL AS is_over, s.live_from, s.endpoint,
  s.attributes, format('arn:aws:sns:%s:%s:%s', t.region, t.account_id, t.topic_name) AS topic_arn
FROM replays AS r
JOIN subscriptions AS s ON s.subscription_id = r.subscription_id
JOIN topics AS t ON t.topic_id = r.topic_id
WHERE r.due_at <= coalesce($1::timestamptz, present()) AND s.is_confirmed
  AND (t.account_id = ANY($2::text[])) = $3::boolean
ORDER BY r.due_at LIMIT 1 FOR KEY SHARE OF s SKIP LOCKED FOR NO KEY UPDATE OF r SKIP LOCKED

-- name: hold_topic
-- params: topic_id
-- Waits for transactions that have drawn a number for the topic, and blocks further draws until
-- this transaction ends (`topic_number`).
SELECT pg_advisory_xact_lock(hashtextextended('', -1 - $1::bigint))

-- name: last_number
-- params: now
-- With the topic locked: later publishes have a higher number and are archived later.
SELECT CASE WHEN q.is_called THEN q.last_value ELSE 0 END AS upto_sequence,
  coalesce($1::timestamptz, present()) AS upto_at
FROM topic_sequence AS q

-- name: extend
-- params: subscription_id, begun_sequence, upto_sequence, upto_at
-- Extends the replay up to a number, and locks its row, after that of the subscription as in
-- `claim`; no row if it is another replay by now, or was extended further. The first time it skips
-- messages older than its start: the order of numbers is that of archived_at except for concurrent
-- publishes and clock changes. A day of margin is plenty. Columns in the order of `TopicReplay`.
WITH s AS MATERIALIZED (
  SELECT k.subscription_id, k.live_from, k.endpoint, k.attributes FROM subscriptions AS k
  WHERE k.subscription_id = $1 FOR KEY SHARE
)
UPDATE replays AS r
SET status = CASE WHEN r.status = 'Pending' THEN 'In progress' ELSE r.status END,
  upto_sequence = $3, upto_at = $4,
  last_sequence = CASE WHEN r.upto_at IS NOT NULL THEN r.last_sequence ELSE least($3, coalesce((
    SELECT a.sequence FROM topic_archive AS a
    WHERE a.topic_id = r.topic_id AND a.archived_at < r.starting_at - interval '1 day'
    ORDER BY a.archived_at DESC LIMIT 1), 0)) END
FROM s, topics AS t
WHERE r.subscription_id = $1 AND r.begun_sequence = $2 AND r.upto_sequence <= $3
  AND s.subscription_id = r.subscription_id AND t.topic_id = r.topic_id
RETURNING r.subscription_id, r.topic_id, r.starting_at, r.ending_at, r.base_url, r.begun_sequence,
  r.last_sequence, r.upto_sequence, r.finished_at IS NOT NULL AS is_over, s.live_from, s.endpoint,
  s.attributes, format('arn:aws:sns:%s:%s:%s', t.region, t.account_id, t.topic_name) AS topic_arn

-- name: read
-- params: topic_id, last_sequence, upto_sequence, starting_at, ending_at, begun_sequence, live_from, limit, most_bytes
-- The next messages of the archive, at most `limit`, and at most `most_bytes` of wanted ones (at
-- least one). A message is wanted if it was archived in time, and either predates the replay or was
-- not offered to the subscription. `found` counts messages within the limit; `is_past`: later ones
-- were archived after the end.
SELECT x.sequence, x.found, x.is_past, x.is_wanted, x.message_id, x.group_id, x.deduplication_id,
  CASE WHEN x.is_wanted THEN x.subject END AS subject,
  CASE WHEN x.is_wanted THEN x.message END AS message,
  CASE WHEN x.is_wanted THEN x.attributes END AS attributes, x.sender_id, x.published_at
FROM (
  SELECT w.*, count(*) OVER () AS found,
    sum(w.size) OVER (ORDER BY w.sequence) - w.size AS bytes_before
  FROM (
    SELECT a.sequence, a.message_id, a.group_id, a.deduplication_id, a.subject, a.message,
      a.attributes, a.sender_id, a.published_at, c.is_wanted,
      coalesce(a.archived_at > $5::timestamptz + interval '1 day', false) AS is_past,
      CASE WHEN c.is_wanted
        THEN octet_length(a.message) + coalesce(octet_length(a.attributes), 0) ELSE 0 END AS size
    FROM topic_archive AS a, LATERAL (
      SELECT a.archived_at >= $4 AND a.archived_at <= coalesce($5::timestamptz, 'infinity')
        AND (a.sequence <= $6 OR a.known_live < $7) AS is_wanted) AS c
    WHERE a.topic_id = $1 AND a.sequence > $2 AND a.sequence <= $3
    ORDER BY a.sequence LIMIT $8) AS w) AS x
WHERE x.bytes_before < $9::bigint
ORDER BY x.sequence

-- name: advance
-- params: now, subscription_id, last_sequence, replayed_count
-- Records the progress of the replay; other due replays come first now.
UPDATE replays
SET last_sequence = $3, replayed_count = replayed_count + $4,
  due_at = coalesce($1::timestamptz, present())
WHERE subscription_id = $2

-- name: pause
-- params: now, subscription_id, seconds
-- Delays the replay by so many seconds: its queue is full.
UPDATE replays
SET due_at = coalesce($1::timestamptz, present()) + make_interval(secs => $3::float8)
WHERE subscription_id = $2

-- name: settle
-- params: now, subscription_id, is_past
-- Settles a replay that reached its line. It is over unless its end is in the future. Then it polls
-- for stragglers, at growing intervals, until a minute later.
UPDATE replays AS r
SET last_sequence = greatest(r.last_sequence, r.upto_sequence),
  status = CASE WHEN c.is_over THEN 'Completed' ELSE r.status END,
  finished_at = CASE WHEN c.is_over THEN c.finished_at END,
  due_at = CASE
    WHEN NOT c.is_over THEN greatest(c.now + interval '1 second',
      least(r.ending_at, c.now + (c.now - r.begun_at), c.now + interval '1 minute'))
    WHEN $3 OR c.now >= c.finished_at + interval '1 minute' THEN NULL
    ELSE c.now + greatest(c.now - c.finished_at, interval '1 second') END
FROM (SELECT coalesce($1::timestamptz, present()) AS now) AS clock, LATERAL (
  SELECT o.subscription_id, clock.now, coalesce(o.finished_at, clock.now) AS finished_at,
    o.finished_at IS NOT NULL OR o.ending_at IS NULL OR o.upto_at > o.ending_at OR $3 AS is_over
  FROM replays AS o WHERE o.subscription_id = $2) AS c
WHERE r.subscription_id = c.subscription_id

-- name: end
-- params: now, subscription_id, failure_reason
-- Ends the replay; an incomplete one has failed.
UPDATE replays
SET status = CASE WHEN finished_at IS NULL THEN 'Failed' ELSE status END,
  failure_reason = CASE WHEN finished_at IS NULL THEN $3 END,
  finished_at = coalesce(finished_at, $1::timestamptz, present()), due_at = NULL
WHERE subscription_id = $2
