-- Schedules and their groups, for faces. storage/schedule_fires.sql has the statements of firing.

-- part: schedule_group
-- Columns in the order of `ScheduleGroup`.
SELECT group_id, account_id, region, group_name, tags, is_deleting, client_token, created_at,
  modified_at
FROM schedule_groups

-- name: present
-- params: now
-- The instant for changes of a schedule: hosts have their own clocks.
SELECT coalesce($1::timestamptz, present())

-- name: wait_briefly
-- params:
-- A firing worker holds schedule rows, and may need a connection that a waiting transaction has.
SELECT set_config('lock_timeout', '2s', true)

-- name: create
-- params: now, account_id, region, group_id, schedule_name, is_active, next_fire_at, due_at, catchup, catchup_limit, failure_threshold, deletes_itself, window_seconds, starts_at, ends_at, max_attempts, max_age_seconds, client_token, target_kind, timing, target, dead_letter, spec
-- Returns the id of the new schedule, or no row if the name exists.
INSERT INTO schedules (account_id, region, group_id, schedule_name, is_active, next_fire_at, due_at,
  catchup, catchup_limit, failure_threshold, deletes_itself, window_seconds, starts_at, ends_at,
  max_attempts, max_age_seconds, client_token, target_kind, timing, target, target_bytes, dead_letter,
  spec, created_at, modified_at)
SELECT $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20::json,
  $21::text::json, octet_length($21::text), $22::json, $23::json, clock.now, clock.now
FROM (SELECT coalesce($1::timestamptz, present()) AS now) AS clock
ON CONFLICT (account_id, region, coalesce(group_id, 0), schedule_name) DO NOTHING
RETURNING schedule_id

-- name: find
-- params: account_id, region, group_key, schedule_name
-- group_key 0: a schedule without a group.
SELECT s.*, g.group_name
FROM schedules AS s LEFT JOIN schedule_groups AS g ON g.group_id = s.group_id
WHERE s.account_id = $1 AND s.region = $2 AND coalesce(s.group_id, 0) = $3 AND s.schedule_name = $4

-- name: find_by_id
-- params: schedule_id
-- The schedule with the name of its group; no row if it is deleted.
SELECT s.*, g.group_name
FROM schedules AS s LEFT JOIN schedule_groups AS g ON g.group_id = s.group_id
WHERE s.schedule_id = $1

-- name: lock
-- params: account_id, region, group_key, schedule_name
-- As `find`, locked: prevents a firing, or waits for a current one and sees its result.
SELECT s.*, g.group_name
FROM schedules AS s LEFT JOIN schedule_groups AS g ON g.group_id = s.group_id
WHERE s.account_id = $1 AND s.region = $2 AND coalesce(s.group_id, 0) = $3 AND s.schedule_name = $4
FOR UPDATE OF s

-- name: replace
-- params: now, schedule_id, is_active, next_fire_at, due_at, catchup, catchup_limit, failure_threshold, deletes_itself, window_seconds, starts_at, ends_at, max_attempts, max_age_seconds, client_token, target_kind, timing, target, dead_letter, spec
-- Replaces everything but its name and counters; the count of consecutive failures restarts.
UPDATE schedules
SET is_active = $3, next_fire_at = $4, due_at = $5, catchup = $6, catchup_limit = $7,
  failure_threshold = $8, deletes_itself = $9, window_seconds = $10, starts_at = $11,
  ends_at = $12, max_attempts = $13, max_age_seconds = $14, client_token = $15, target_kind = $16,
  timing = $17::json, target = $18::text::json, target_bytes = octet_length($18::text),
  dead_letter = $19::json, spec = $20::json,
  failure_count = 0, modified_at = coalesce($1::timestamptz, present())
WHERE schedule_id = $2

-- name: set_state
-- params: now, schedule_id, is_active, next_fire_at, due_at
-- Pauses or resumes; the caller locks the row (`lock`). The count of consecutive failures restarts,
-- or the next failure would pause the schedule again.
UPDATE schedules
SET is_active = $3, next_fire_at = $4, due_at = $5, failure_count = 0,
  modified_at = coalesce($1::timestamptz, present())
WHERE schedule_id = $2

-- name: delete
-- params: schedule_id
-- Returns the id, or no row if it is deleted. Waits for a current firing (`wait_briefly`). Pending
-- invocations stay, because they have their own data.
DELETE FROM schedules WHERE schedule_id = $1 RETURNING schedule_id

-- name: page
-- params: account_id, region, after_group, after_name, last_group, name_prefix, is_active, target_kind, limit
-- Schedules behind (after_group, after_name) in groups up to last_group, 0 for no group; is_active
-- and target_kind NULL: any.
SELECT s.*, g.group_name
FROM (
  SELECT k.* FROM schedules AS k
  WHERE k.account_id = $1 AND k.region = $2
    AND (coalesce(k.group_id, 0), k.schedule_name) > ($3::int, $4::text)
    AND coalesce(k.group_id, 0) <= $5
    AND starts_with(k.schedule_name, $6)
    AND ($7::boolean IS NULL OR k.is_active = $7)
    AND ($8::text IS NULL OR k.target_kind = $8)
  ORDER BY k.account_id, k.region, coalesce(k.group_id, 0), k.schedule_name LIMIT $9) AS s
LEFT JOIN schedule_groups AS g ON g.group_id = s.group_id
ORDER BY coalesce(s.group_id, 0), s.schedule_name

-- name: find_group
-- params: account_id, region, group_name
-- The group of that name, or no row. It may be in deletion: `is_deleting`.
-- include: schedule_group
WHERE account_id = $1 AND region = $2 AND group_name = $3

-- name: lock_group
-- params: account_id, region, group_name
-- Locks and returns the group to the end of the transaction. New schedules only refer to its key
-- and do not wait; its removal waits for them.
-- include: schedule_group
WHERE account_id = $1 AND region = $2 AND group_name = $3
FOR NO KEY UPDATE

-- name: share
-- params: account_id, region, group_name
-- The group, locked against changes and deletion until the transaction ends; others may share it.
-- include: schedule_group
WHERE account_id = $1 AND region = $2 AND group_name = $3
FOR SHARE

-- name: create_group
-- params: now, account_id, region, group_name, tags, client_token
-- The new group, or no row if the name exists. Columns in the order of `ScheduleGroup`.
INSERT INTO schedule_groups (account_id, region, group_name, tags, client_token, created_at,
  modified_at)
SELECT $2, $3, $4, $5::json, $6, clock.now, clock.now
FROM (SELECT coalesce($1::timestamptz, present()) AS now) AS clock
ON CONFLICT (account_id, region, group_name) DO NOTHING
RETURNING group_id, account_id, region, group_name, tags, is_deleting, client_token, created_at,
  modified_at

-- name: page_of_groups
-- params: account_id, region, name_prefix, after_name, limit
-- Groups in byte order of their names, behind `after_name`.
-- include: schedule_group
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
-- Removes some schedules of a group; returns the count. Waits for schedules being fired.
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
