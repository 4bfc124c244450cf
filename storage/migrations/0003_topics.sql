-- Topics, subscriptions, deliveries to web hooks, the outbox, archives and replays, SMS and push.
-- In `messages` a body_md5 of zeros now says: an SNS envelope whose signature receives fill in.

CREATE TABLE topics (
  topic_id int GENERATED ALWAYS AS IDENTITY,
  account_id text COLLATE "C" NOT NULL,
  region text COLLATE "C" NOT NULL,
  topic_name text COLLATE "C" NOT NULL,
  is_fifo boolean NOT NULL,
  attributes jsonb NOT NULL DEFAULT '{}', -- what was set, under AWS's names, as it is read back
  tags json NOT NULL DEFAULT '{}', -- json keeps the order in which they were added
  data_protection_policy text,
  subscriptions_deleted bigint NOT NULL DEFAULT 0,
  created_at timestamptz NOT NULL,
  CONSTRAINT topics_key PRIMARY KEY (topic_id)
);
CREATE UNIQUE INDEX topics_name ON topics (account_id, region, topic_name);

-- Numbers of messages of FIFO topics and of the subscriptions that they may go to. Only the former
-- show, as SequenceNumber, which has gaps anyway.
CREATE SEQUENCE topic_sequence AS bigint;

-- subscription_id is the last part of its ARN. Until is_confirmed, nothing is delivered but the
-- request to confirm, whose token ends at token_expires_at; a worker then removes the subscription.
CREATE TABLE subscriptions (
  subscription_id uuid NOT NULL,
  position bigint GENERATED ALWAYS AS IDENTITY,
  topic_id int NOT NULL,
  protocol text COLLATE "C" NOT NULL,
  endpoint text COLLATE "C" NOT NULL,
  account_id text COLLATE "C" NOT NULL,
  region text COLLATE "C" NOT NULL,
  attributes jsonb NOT NULL DEFAULT '{}',
  is_confirmed boolean NOT NULL,
  was_authenticated boolean NOT NULL,
  authenticate_on_unsubscribe boolean NOT NULL DEFAULT false,
  token text COLLATE "C",
  token_expires_at timestamptz,
  -- Drawn when it is confirmed, while its topic is locked: of two subscriptions to one topic, the
  -- one with the lower number was committed before the other one got its number.
  live_from bigint NOT NULL DEFAULT nextval('topic_sequence'),
  throttled_until timestamptz, -- when the next delivery may begin, under maxReceivesPerSecond
  created_at timestamptz NOT NULL,
  CONSTRAINT subscriptions_key PRIMARY KEY (subscription_id),
  CONSTRAINT subscriptions_topic FOREIGN KEY (topic_id) REFERENCES topics ON DELETE CASCADE
);
CREATE UNIQUE INDEX subscriptions_endpoint ON subscriptions (topic_id, protocol, endpoint);
CREATE INDEX subscriptions_of_topic ON subscriptions (topic_id, position);
CREATE INDEX subscriptions_of_account ON subscriptions (account_id, region, position);
CREATE UNIQUE INDEX subscriptions_token ON subscriptions (token) WHERE token IS NOT NULL;
CREATE INDEX subscriptions_pending ON subscriptions (token_expires_at) WHERE NOT is_confirmed;
-- To count filter policies: a topic and an account may have so many.
CREATE INDEX subscriptions_filtered_of_topic ON subscriptions (topic_id)
  WHERE attributes ? 'FilterPolicy';
CREATE INDEX subscriptions_filtered_of_account ON subscriptions (account_id, region)
  WHERE attributes ? 'FilterPolicy';

-- Subscriptions that somebody without credentials ended: the endpoint gets a link with this token,
-- which restores them until it expires.
CREATE TABLE ended_subscriptions (
  token text COLLATE "C" NOT NULL,
  expires_at timestamptz NOT NULL,
  subscription_id uuid NOT NULL,
  topic_id int NOT NULL,
  protocol text COLLATE "C" NOT NULL,
  endpoint text COLLATE "C" NOT NULL,
  account_id text COLLATE "C" NOT NULL,
  region text COLLATE "C" NOT NULL,
  attributes jsonb NOT NULL,
  CONSTRAINT ended_subscriptions_key PRIMARY KEY (token),
  CONSTRAINT ended_subscriptions_topic FOREIGN KEY (topic_id) REFERENCES topics ON DELETE CASCADE
);
CREATE INDEX ended_subscriptions_of_topic ON ended_subscriptions (topic_id);
CREATE INDEX ended_subscriptions_expires ON ended_subscriptions (expires_at);

-- One row for each request that a web hook still has to get. `due_at` is the next attempt, or, while
-- a worker is at it, the end of its lease: after a crash the row is due again by itself. An endpoint
-- is remembered here too: the confirmation of an unsubscribe outlives its subscription.
CREATE TABLE deliveries (
  delivery_id bigint GENERATED ALWAYS AS IDENTITY,
  subscription_id uuid NOT NULL,
  kind text COLLATE "C" NOT NULL,
  state text COLLATE "C" NOT NULL DEFAULT 'pending',
  is_leased boolean NOT NULL DEFAULT false,
  is_raw boolean NOT NULL,
  due_at timestamptz NOT NULL,
  created_at timestamptz NOT NULL,
  attempted_at timestamptz,
  attempt_count int NOT NULL DEFAULT 0,
  lost_count int NOT NULL DEFAULT 0, -- leases that ran out: the request may have been sent twice
  last_status int,
  last_error text,
  message_id uuid NOT NULL,
  account_id text COLLATE "C" NOT NULL, -- of the topic
  region text COLLATE "C" NOT NULL,
  topic_name text COLLATE "C" NOT NULL,
  endpoint text COLLATE "C" NOT NULL,
  body text COLLATE "C" NOT NULL, -- the message, or its envelope without the signature
  CONSTRAINT deliveries_key PRIMARY KEY (delivery_id),
  CONSTRAINT deliveries_kind
    CHECK (kind IN ('Notification', 'SubscriptionConfirmation', 'UnsubscribeConfirmation')),
  CONSTRAINT deliveries_state CHECK (state IN ('pending', 'exhausted'))
) WITH (
  autovacuum_vacuum_scale_factor = 0.01,
  autovacuum_vacuum_threshold = 1000,
  autovacuum_vacuum_cost_delay = 0
);
CREATE INDEX deliveries_due ON deliveries (subscription_id, due_at) WHERE state = 'pending';
CREATE INDEX deliveries_exhausted ON deliveries (account_id, region, delivery_id)
  WHERE state = 'exhausted';

-- What AWS would have sent by e-mail, SMS or push, or to Lambda or Firehose: kept to be looked at.
CREATE TABLE outbox (
  outbox_id bigint GENERATED ALWAYS AS IDENTITY,
  account_id text COLLATE "C" NOT NULL,
  region text COLLATE "C" NOT NULL,
  protocol text COLLATE "C" NOT NULL,
  destination text COLLATE "C" NOT NULL,
  kind text COLLATE "C" NOT NULL,
  topic_arn text COLLATE "C",
  subscription_arn text COLLATE "C",
  message_id uuid NOT NULL,
  subject text,
  body text COLLATE "C" NOT NULL,
  attributes text COLLATE "C", -- message attributes as JSON
  created_at timestamptz NOT NULL,
  CONSTRAINT outbox_key PRIMARY KEY (outbox_id)
);
CREATE INDEX outbox_of_account ON outbox (account_id, outbox_id);
CREATE INDEX outbox_age ON outbox (created_at);

-- FIFO topics: five minutes of deduplication ids.
CREATE TABLE topic_dedup (
  topic_id int NOT NULL,
  dedup_key uuid NOT NULL,
  message_id uuid NOT NULL,
  sequence bigint NOT NULL,
  expires_at timestamptz NOT NULL,
  CONSTRAINT topic_dedup_key PRIMARY KEY (topic_id, dedup_key)
) WITH (
  autovacuum_vacuum_scale_factor = 0.01,
  autovacuum_vacuum_threshold = 1000,
  autovacuum_vacuum_cost_delay = 0
);
CREATE INDEX topic_dedup_expires ON topic_dedup (expires_at);

CREATE TABLE topic_archive (
  topic_id int NOT NULL,
  sequence bigint NOT NULL,
  archived_at timestamptz NOT NULL,
  message_id uuid NOT NULL,
  group_id text COLLATE "C" NOT NULL,
  deduplication_id text COLLATE "C" NOT NULL,
  subject text,
  message text COLLATE "C" NOT NULL, -- what queues get: the text for sqs of a message in JSON
  attributes text COLLATE "C",
  sender_id text COLLATE "C" NOT NULL,
  published_at timestamptz NOT NULL, -- as its envelopes say
  known_live bigint NOT NULL, -- the highest live_from among the subscriptions that it was offered to
  CONSTRAINT topic_archive_key PRIMARY KEY (topic_id, sequence)
);
CREATE INDEX topic_archive_age ON topic_archive (topic_id, archived_at);

-- A replay goes on batch by batch; a batch and how far it got are one transaction. It may go up to
-- upto_sequence: as of upto_at no publish under way had a number up to that one. due_at is the next
-- batch or look for stragglers; NULL: there is no more to come.
CREATE TABLE replays (
  subscription_id uuid NOT NULL,
  topic_id int NOT NULL,
  status text COLLATE "C" NOT NULL,
  failure_reason text,
  starting_at timestamptz NOT NULL,
  ending_at timestamptz,
  base_url text COLLATE "C" NOT NULL, -- where links in envelopes lead
  begun_sequence bigint NOT NULL, -- drawn when it was asked for: the messages before it are its own
  last_sequence bigint NOT NULL DEFAULT 0,
  upto_sequence bigint NOT NULL DEFAULT 0,
  upto_at timestamptz,
  replayed_count bigint NOT NULL DEFAULT 0,
  begun_at timestamptz NOT NULL,
  finished_at timestamptz,
  due_at timestamptz,
  CONSTRAINT replays_key PRIMARY KEY (subscription_id),
  CONSTRAINT replays_subscription FOREIGN KEY (subscription_id)
    REFERENCES subscriptions ON DELETE CASCADE,
  CONSTRAINT replays_status CHECK (status IN ('Pending', 'In progress', 'Completed', 'Failed'))
);
CREATE INDEX replays_due ON replays (due_at) WHERE due_at IS NOT NULL;

-- Mobile push.
CREATE TABLE platform_applications (
  application_id int GENERATED ALWAYS AS IDENTITY,
  account_id text COLLATE "C" NOT NULL,
  region text COLLATE "C" NOT NULL,
  platform text COLLATE "C" NOT NULL,
  application_name text COLLATE "C" NOT NULL,
  attributes jsonb NOT NULL DEFAULT '{}',
  created_at timestamptz NOT NULL,
  CONSTRAINT platform_applications_key PRIMARY KEY (application_id)
);
CREATE UNIQUE INDEX platform_applications_name
  ON platform_applications (account_id, region, platform, application_name);
CREATE INDEX platform_applications_of_account
  ON platform_applications (account_id, region, application_id);
CREATE TABLE platform_endpoints (
  endpoint_id uuid NOT NULL,
  position bigint GENERATED ALWAYS AS IDENTITY,
  application_id int NOT NULL,
  token text COLLATE "C" NOT NULL,
  attributes jsonb NOT NULL DEFAULT '{}',
  created_at timestamptz NOT NULL,
  CONSTRAINT platform_endpoints_key PRIMARY KEY (endpoint_id),
  CONSTRAINT platform_endpoints_application FOREIGN KEY (application_id)
    REFERENCES platform_applications ON DELETE CASCADE
);
CREATE UNIQUE INDEX platform_endpoints_token ON platform_endpoints (application_id, token);
CREATE INDEX platform_endpoints_of_application ON platform_endpoints (application_id, position);

-- SMS.
CREATE TABLE sms_attributes (
  account_id text COLLATE "C" NOT NULL,
  region text COLLATE "C" NOT NULL,
  attributes jsonb NOT NULL DEFAULT '{}',
  CONSTRAINT sms_attributes_key PRIMARY KEY (account_id, region)
);
CREATE TABLE sms_opted_out (
  account_id text COLLATE "C" NOT NULL,
  region text COLLATE "C" NOT NULL,
  phone_number text COLLATE "C" NOT NULL,
  CONSTRAINT sms_opted_out_key PRIMARY KEY (account_id, region, phone_number)
);
CREATE TABLE sms_sandbox_numbers (
  account_id text COLLATE "C" NOT NULL,
  region text COLLATE "C" NOT NULL,
  phone_number text COLLATE "C" NOT NULL,
  language_code text COLLATE "C" NOT NULL,
  one_time_password text COLLATE "C" NOT NULL,
  is_verified boolean NOT NULL DEFAULT false,
  CONSTRAINT sms_sandbox_numbers_key PRIMARY KEY (account_id, region, phone_number)
);
