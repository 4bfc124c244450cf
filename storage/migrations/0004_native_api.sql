-- What the native API adds: patterns of routing keys, its subscriptions, archives of consumed messages.

-- A pattern is kept like a topic, but SNS neither lists nor finds it: a FIFO topic may have the same
-- name.
ALTER TABLE topics ADD COLUMN is_pattern boolean NOT NULL DEFAULT false;
DROP INDEX topics_name;
CREATE UNIQUE INDEX topics_name ON topics (account_id, region, topic_name, is_pattern);
CREATE INDEX topics_patterns ON topics (account_id, region, topic_id) WHERE is_pattern;

-- Made by the native API: its deliveries have its back-off, unless a policy says otherwise.
ALTER TABLE subscriptions ADD COLUMN is_native boolean NOT NULL DEFAULT false;
ALTER TABLE ended_subscriptions ADD COLUMN is_native boolean NOT NULL DEFAULT false;
-- What a queue gets messages from.
CREATE INDEX subscriptions_of_queue ON subscriptions (endpoint, position) WHERE protocol = 'sqs';

-- Whether messages that are deleted by their receivers are kept, and for how many days; NULL: until
-- somebody deletes them.
ALTER TABLE queues ADD COLUMN is_archiving boolean NOT NULL DEFAULT false;
ALTER TABLE queues ADD COLUMN archive_days int;
CREATE TABLE message_archive (
  queue_id int NOT NULL,
  sequence bigint NOT NULL,
  archived_at timestamptz NOT NULL,
  sent_at timestamptz NOT NULL,
  first_received_at timestamptz,
  receive_count int NOT NULL,
  message_id uuid NOT NULL,
  group_id text COLLATE "C",
  deduplication_id text COLLATE "C",
  sender_id text COLLATE "C" NOT NULL,
  body text COLLATE "C" NOT NULL,
  attributes text COLLATE "C",
  system text COLLATE "C",
  body_md5 bytea, -- as in `messages`; NULL: it is not kept (FIFO)
  CONSTRAINT message_archive_key PRIMARY KEY (queue_id, sequence)
);
CREATE INDEX message_archive_age ON message_archive (queue_id, archived_at);

-- How many messages came in, of a delta that many were folded into; NULL: of a delta as it was
-- written, whose positive part it is.
ALTER TABLE queue_deltas ADD COLUMN arrived bigint;
