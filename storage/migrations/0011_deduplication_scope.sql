-- From when on a queue whose DeduplicationScope was changed to messageGroup deduplicates by group.
-- NULL: it always did, or it does not.
ALTER TABLE queues ADD COLUMN grouped_from timestamptz;
