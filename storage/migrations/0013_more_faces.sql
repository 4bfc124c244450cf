-- What three more faces need of queues and messages.

-- As its owner calls a queue; NULL: by its name.
ALTER TABLE queues ADD COLUMN title text COLLATE "C";
-- Of a queue with groups (is_fifo says in which tables its messages are): one message of a group is
-- out at a time, a deduplication id is new when its message is deleted.
ALTER TABLE queues ADD COLUMN is_serial boolean NOT NULL DEFAULT false;
-- Whether a standard queue ever got a message with a priority or an end: its receives go by both.
ALTER TABLE queues ADD COLUMN has_priorities boolean NOT NULL DEFAULT false;
-- How many messages it may hold; NULL: any number.
ALTER TABLE queues ADD COLUMN most_messages int;
-- After how many deliveries a message moves to the queue's own dead-letter queue, which is made for
-- the first of them; NULL: only a redrive policy says so.
ALTER TABLE queues ADD COLUMN max_deliveries int;

-- 0 to 10, the most urgent; NULL: 0, its queue had no priorities when it was sent.
ALTER TABLE messages ADD COLUMN priority smallint;
-- From then on nobody gets it and it is not counted; NULL: its queue's retention alone ends it.
ALTER TABLE messages ADD COLUMN expires_at timestamptz;
ALTER TABLE fifo_messages ADD COLUMN expires_at timestamptz;
