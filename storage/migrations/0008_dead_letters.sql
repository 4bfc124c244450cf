-- What dead letters carry.

-- A raw delivery to a web hook has no message attributes, its dead letter has those of the message.
-- NULL: it has none, or no redrive policy.
ALTER TABLE deliveries ADD COLUMN attributes text COLLATE "C";

-- How often a message had been received when a redrive policy moved it to its queue, whose own policy
-- counts from there. NULL: nothing moved it, or only before this migration.
ALTER TABLE messages ADD COLUMN prior_count int;
