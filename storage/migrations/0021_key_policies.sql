-- What a key may do, as a policy of IAM's that says no Principal. NULL: everything in its account.
-- Who has an administrator's may do everything.
ALTER TABLE keys
  ADD COLUMN policy text,
  ADD CONSTRAINT keys_policy CHECK (policy IS NULL OR NOT is_administrator);
