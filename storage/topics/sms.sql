-- SMS: an account's attributes, opted-out phone numbers, and the sandbox's numbers.

-- name: attributes
-- params: account_id, region
-- The attributes as one object; no row if none was set.
SELECT attributes FROM sms_attributes WHERE account_id = $1 AND region = $2

-- name: change_attributes
-- params: account_id, region, attributes, unset
-- Sets these attributes, unsets those and leaves the others.
INSERT INTO sms_attributes AS s (account_id, region, attributes) VALUES ($1, $2, $3::jsonb)
ON CONFLICT (account_id, region)
DO UPDATE SET attributes = (s.attributes || excluded.attributes) - $4::text[]

-- name: is_opted_out
-- params: account_id, region, phone_number
-- Whether that number has opted out: one probe of the primary key, for every publish to a number.
SELECT EXISTS (
  SELECT 1 FROM sms_opted_out WHERE account_id = $1 AND region = $2 AND phone_number = $3)

-- name: opt_out
-- params: account_id, region, phone_number
-- Idempotent: concurrent requests do not fail each other.
INSERT INTO sms_opted_out (account_id, region, phone_number) VALUES ($1, $2, $3)
ON CONFLICT (account_id, region, phone_number) DO NOTHING

-- name: opt_in
-- params: account_id, region, phone_number
-- The number gets messages again; no error when it did before.
DELETE FROM sms_opted_out WHERE account_id = $1 AND region = $2 AND phone_number = $3

-- name: list_opted_out
-- params: account_id, region, after_number, limit
-- Behind `after_number` in byte order, which is that of the primary key: no sort, no offset.
SELECT phone_number FROM sms_opted_out
WHERE account_id = $1 AND region = $2 AND phone_number > $3
ORDER BY phone_number LIMIT $4

-- name: add_sandbox_number
-- params: account_id, region, phone_number, language_code, one_time_password
-- Adds the number, or replaces the password of an unverified one, and returns true. No row for a
-- verified number, which stays so.
INSERT INTO sms_sandbox_numbers AS s (account_id, region, phone_number, language_code,
  one_time_password)
VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (account_id, region, phone_number)
DO UPDATE SET language_code = excluded.language_code, one_time_password = excluded.one_time_password
WHERE NOT s.is_verified
RETURNING true

-- name: verify_sandbox_number
-- params: account_id, region, phone_number, one_time_password
-- Returns whether the password is right, or no row without such a number.
UPDATE sms_sandbox_numbers SET is_verified = is_verified OR one_time_password = $4
WHERE account_id = $1 AND region = $2 AND phone_number = $3
RETURNING one_time_password = $4

-- name: delete_sandbox_number
-- params: account_id, region, phone_number
-- A row if the number existed: the action has a different answer for each case.
DELETE FROM sms_sandbox_numbers WHERE account_id = $1 AND region = $2 AND phone_number = $3
RETURNING true

-- name: list_sandbox_numbers
-- params: account_id, region, after_number, limit
-- Behind `after_number` in byte order, which is that of the primary key: no sort, no offset.
SELECT phone_number, is_verified FROM sms_sandbox_numbers
WHERE account_id = $1 AND region = $2 AND phone_number > $3
ORDER BY phone_number LIMIT $4
