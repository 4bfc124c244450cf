-- Keys of kind 'access' sign requests: their secrets have to be known for that, so they are kept
-- encrypted, with a key that is not in the database. For a while two secrets of a key are good.
ALTER TABLE keys
  ADD COLUMN is_administrator boolean NOT NULL DEFAULT false,
  -- Not taken at the moment; it may be again.
  ADD COLUMN disabled_at timestamptz,
  -- The name of the key in a signature.
  ADD COLUMN access_key text COLLATE "C",
  ADD COLUMN secret bytea,
  ADD COLUMN previous_secret bytea,
  ADD COLUMN previous_until timestamptz,
  ADD CONSTRAINT keys_secret CHECK (kind <> 'access'
    OR (access_key IS NOT NULL AND (secret IS NOT NULL OR revoked_at IS NOT NULL))),
  ADD CONSTRAINT keys_previous CHECK ((previous_secret IS NULL) = (previous_until IS NULL));
CREATE UNIQUE INDEX keys_access_key ON keys (access_key) WHERE access_key IS NOT NULL;
