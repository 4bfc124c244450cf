-- What browsing a queue adds: since when a dead letter has been in its queue.

-- A number of message_sequence, drawn when a redrive policy moved the message here: it came then,
-- although it keeps the number under which it was sent. NULL: it was sent to this queue.
ALTER TABLE messages ADD COLUMN arrival bigint;
