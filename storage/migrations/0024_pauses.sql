-- Pauses: since when receivers get nothing of a queue, and web hooks nothing of a topic or of a
-- subscription. They are no attributes: SQS and SNS show none of them.
ALTER TABLE queues ADD COLUMN paused_at timestamptz;
ALTER TABLE topics ADD COLUMN paused_at timestamptz;
ALTER TABLE subscriptions ADD COLUMN paused_at timestamptz;
CREATE INDEX queues_paused ON queues (queue_id) WHERE paused_at IS NOT NULL AND deleted_at IS NULL;
CREATE INDEX topics_paused ON topics (topic_id) WHERE paused_at IS NOT NULL;
CREATE INDEX subscriptions_paused ON subscriptions (subscription_id) WHERE paused_at IS NOT NULL;
