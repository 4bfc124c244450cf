-- Room in queues that hold only so many messages.

-- name: hold
-- params: now, queue_ids
-- The bounded queues among these, locked against all others that add to them, how many more
-- messages each may hold, and how many wait for that. A function: it locks first and looks after that.
SELECT queue_ids, rooms, waiting FROM hold_rooms($1, $2)
