-- Who subscribed.

-- The name of the user whose signature it was, which is the access key. NULL: not written down, as
-- before this migration; then the name of the account stands in for it.
ALTER TABLE subscriptions ADD COLUMN user_name text COLLATE "C";
ALTER TABLE ended_subscriptions ADD COLUMN user_name text COLLATE "C";
