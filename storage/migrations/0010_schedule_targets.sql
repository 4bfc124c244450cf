-- Schedules whose target is neither a queue nor a topic: what it would get goes to the outbox.
ALTER TABLE schedules DROP CONSTRAINT schedules_target_kind;
ALTER TABLE schedules ADD CONSTRAINT schedules_target_kind
  CHECK (target_kind IN ('queue', 'topic', 'outbox'));
