-- What accounts may have and how often accounts and keys may ask, where that is not what the
-- gateways' settings say.
CREATE TABLE quotas (
  -- An account of 12 digits, or key-17.
  subject text COLLATE "C" NOT NULL,
  -- NULL: what the settings say; -1: any number.
  request_count int,
  request_seconds int,
  queues int,
  topics int,
  subscriptions int,
  logs int,
  CONSTRAINT quotas_key PRIMARY KEY (subject),
  CONSTRAINT quotas_requests CHECK ((request_count IS NULL) = (request_seconds IS NULL)
    AND request_count >= -1 AND request_seconds > 0),
  CONSTRAINT quotas_counts CHECK (queues >= -1 AND topics >= -1 AND subscriptions >= -1
    AND logs >= -1)
);
