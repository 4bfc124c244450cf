-- Room in queues that hold only so many messages.

-- name: rooms
-- params: now, queue_ids
-- The bounded queues among these, locked against all others that add to them, and how many more
-- messages each may hold. A function: it locks first and looks after that.
SELECT queue_ids, rooms FROM queue_rooms($1, $2)
