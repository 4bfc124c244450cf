-- Remaining capacity of bounded queues.

-- name: hold
-- params: now, queue_ids
-- Locks the bounded queues among these against other additions. Returns their capacity and the
-- number of messages waiting for it. A function: it locks before it reads.
SELECT queue_ids, rooms, waiting FROM hold_rooms($1, $2)
