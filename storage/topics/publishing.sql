-- Writes of a publish besides the statements of queues, deliveries and the outbox.

-- name: number
-- params: now, topic_ids, group_ids, dedup_keys, message_ids
-- dedup_keys and message_ids are the texts of arrays.
SELECT sequences, message_ids, numbered_at
FROM topic_number($1, $2, $3, ($4::text)::uuid[], ($5::text)::uuid[])

-- name: archive
-- params: archived_at, topic_ids, sequences, message_ids, group_ids, deduplication_ids, subjects, messages, attributes, sender_ids, published_ats, known_lives
-- Archives messages of FIFO topics with an archive policy, in the transaction of the publish, so
-- that every delivered message is archived. `known_live` is the highest live_from among the
-- subscriptions offered the message; a replay uses it to skip these.
INSERT INTO topic_archive (topic_id, sequence, archived_at, message_id, group_id,
  deduplication_id, subject, message, attributes, sender_id, published_at, known_live)
SELECT i.topic_id, i.sequence, $1, i.message_id, i.group_id, i.deduplication_id, i.subject,
  i.message, i.attributes, i.sender_id, i.published_at, i.known_live
FROM unnest($2::int[], $3::bigint[], $4::uuid[], $5::text[], $6::text[], $7::text[], $8::text[],
            $9::text[], $10::text[], $11::timestamptz[], $12::bigint[])
  AS i (topic_id, sequence, message_id, group_id, deduplication_id, subject, message, attributes,
    sender_id, published_at, known_live)
