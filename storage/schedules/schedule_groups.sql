-- Groups of schedules.
-- Every statement that needs the time takes `now`; NULL means the clock of the database.

-- name: find
-- params: account_id, region, group_name
-- The group of that name, or no row. It may be in deletion: `is_deleting`.
SELECT group_id, account_id, region, group_name, tags, is_deleting, client_token, created_at,
  modified_at
FROM schedule_groups
WHERE account_id = $1 AND region = $2 AND group_name = $3

-- name: lock
-- params: account_id, region, group_name
-- Locks and returns the group to the end of the transaction. New schedules only refer to its key
-- and do not wait; its removal waits for them.
SELECT group_id, account_id, region, group_name, tags, is_deleting, client_token, created_at,
  modified_at
FROM schedule_groups
WHERE account_id = $1 AND region = $2 AND group_name = $3
FOR NO KEY UPDATE

-- name: share
-- params: account_id, region, group_name
-- The group, locked against changes and deletion until the transaction ends; others may share it.
SELECT group_id, account_id, region, group_name, tags, is_deleting, client_token, created_at,
  modified_at
FROM schedule_groups
WHERE account_id = $1 AND region = $2 AND group_name = $3
FOR SHARE

-- name: create
-- params: now, account_id, region, group_name, tags, client_token
-- The new group, or no row if the name exists.
INSERT INTO schedule_groups (account_id, region, group_name, tags, client_token, created_at,
  modified_at)
SELECT $2, $3, $4, $5::json, $6, clock.now, clock.now
FROM (SELECT coalesce($1::timestamptz, present()) AS now) AS clock
ON CONFLICT (account_id, region, group_name) DO NOTHING
RETURNING group_id, account_id, region, group_name, tags, is_deleting, client_token, created_at,
  modified_at

-- name: page
-- params: account_id, region, name_prefix, after_name, limit
-- Groups in byte order of their names, behind `after_name`.
SELECT group_id, account_id, region, group_name, tags, is_deleting, client_token, created_at,
  modified_at
FROM schedule_groups
WHERE account_id = $1 AND region = $2 AND group_name > $4 AND starts_with(group_name, $3)
ORDER BY group_name LIMIT $5

-- name: set_tags
-- params: now, group_id, tags
-- Replaces all tags; the caller locks the row. json, not jsonb, keeps their order.
UPDATE schedule_groups
SET tags = $3::json, modified_at = coalesce($1::timestamptz, present())
WHERE group_id = $2

-- name: mark_deleting
-- params: now, group_id
-- Marks a group with more schedules than one transaction should remove; a worker continues.
UPDATE schedule_groups
SET is_deleting = true, modified_at = coalesce($1::timestamptz, present())
WHERE group_id = $2

-- name: find_deleting
-- params: limit
-- Groups whose schedules are being removed, except locked ones.
SELECT group_id FROM schedule_groups
WHERE is_deleting ORDER BY group_id LIMIT $1
FOR UPDATE SKIP LOCKED

-- name: remove_schedules
-- params: group_id, limit
-- Removes some schedules of a group, and returns the count. Waits for schedules being fired: their
-- messages count.
WITH gone AS (
  DELETE FROM schedules AS s
  WHERE s.schedule_id = ANY(ARRAY(
    SELECT o.schedule_id FROM schedules AS o WHERE o.group_id = $1 LIMIT $2 FOR UPDATE))
  RETURNING s.schedule_id
)
SELECT count(*)::int FROM gone

-- name: remove
-- params: group_id
-- Deletes the group, once it has no schedules. The caller locks it against additions.
DELETE FROM schedule_groups WHERE group_id = $1
