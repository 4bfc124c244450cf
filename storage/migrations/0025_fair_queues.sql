-- Standard queues that had messages with a MessageGroupId: their metrics are by quiet groups, too.
ALTER TABLE queues ADD COLUMN has_message_groups boolean NOT NULL DEFAULT false;
