-- Keys by which clients say who they are, and how often producers have sent of late.

-- Of a secret of 256 random bits a plain SHA-256 is enough: nobody can try out all of them, so that
-- a slow hash would only slow down every request.
CREATE TABLE keys (
  key_id bigint GENERATED ALWAYS AS IDENTITY,
  -- 'api': the client sends the key itself, and it is compared with the hash.
  kind text COLLATE "C" NOT NULL,
  secret_hash bytea,
  account_id text COLLATE "C" NOT NULL,
  key_name text COLLATE "C" NOT NULL,
  -- How many requests in how many seconds; NULL: any number.
  rate_requests int,
  rate_seconds int,
  created_at timestamptz NOT NULL,
  expires_at timestamptz,
  revoked_at timestamptz,
  CONSTRAINT keys_key PRIMARY KEY (key_id),
  CONSTRAINT keys_hash CHECK (kind <> 'api' OR octet_length(secret_hash) = 32),
  CONSTRAINT keys_rate CHECK ((rate_requests IS NULL) = (rate_seconds IS NULL)
    AND rate_requests > 0 AND rate_seconds > 0)
);
-- Of the keys of an account that hold two have no name in common: metrics go by it.
CREATE UNIQUE INDEX keys_name ON keys (account_id, key_name) WHERE revoked_at IS NULL;

-- The last window of a producer: a window has a hundred slots, and the counts of as many as it
-- takes are in a ring (functions/rates.sql). A crash may empty it: then everybody begins anew.
CREATE UNLOGGED TABLE rate_windows (
  account_id text COLLATE "C" NOT NULL,
  producer_id text COLLATE "C" NOT NULL,
  window_seconds int NOT NULL,
  -- The last slot that the ring has room for.
  last_slot bigint NOT NULL,
  counts int[] NOT NULL,
  -- The slot in which the last of the processes that wait for permits asks again.
  turn bigint NOT NULL,
  CONSTRAINT rate_windows_key PRIMARY KEY (account_id, producer_id)
) WITH (fillfactor = 50);
