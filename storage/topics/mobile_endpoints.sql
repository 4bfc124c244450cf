-- Mobile push: platform applications and the endpoints of devices. Deleting an application deletes
-- its endpoints.
-- SMS: an account's attributes, opted-out phone numbers, and the sandbox's numbers.

-- part: endpoint
SELECT e.endpoint_id, e.position, e.token, e.attributes, a.account_id, a.region, a.platform,
  a.application_name, a.attributes ->> 'Enabled' AS application_enabled
FROM platform_endpoints AS e JOIN platform_applications AS a USING (application_id)

-- name: create_application
-- params: now, account_id, region, platform, application_name, attributes
-- Creates an application; no row if the name exists.
INSERT INTO platform_applications (account_id, region, platform, application_name, attributes,
  created_at)
VALUES ($2, $3, $4, $5, $6::jsonb, coalesce($1::timestamptz, present()))
ON CONFLICT (account_id, region, platform, application_name) DO NOTHING
RETURNING application_id, account_id, region, platform, application_name, attributes

-- name: find_application
-- params: account_id, region, platform, application_name
-- The application, or no row. It is locked against deletion until the transaction ends, so that an
-- endpoint can be added.
SELECT application_id, account_id, region, platform, application_name, attributes
FROM platform_applications
WHERE account_id = $1 AND region = $2 AND platform = $3 AND application_name = $4
FOR KEY SHARE

-- name: merge_application_attributes
-- params: application_id, attributes
-- Sets these attributes and leaves the others.
UPDATE platform_applications SET attributes = attributes || $2::jsonb WHERE application_id = $1

-- name: delete_application
-- params: account_id, region, platform, application_name
-- Deletes the application, if it exists; the foreign key deletes its endpoints.
DELETE FROM platform_applications
WHERE account_id = $1 AND region = $2 AND platform = $3 AND application_name = $4

-- name: list_applications
-- params: account_id, region, after_application_id, limit
-- In order of creation.
SELECT application_id, account_id, region, platform, application_name, attributes
FROM platform_applications
WHERE account_id = $1 AND region = $2 AND application_id > $3::bigint
ORDER BY application_id LIMIT $4

-- name: create_endpoint
-- params: now, endpoint_id, application_id, token, attributes
-- Returns the id, or no row if the application has an endpoint with that token.
INSERT INTO platform_endpoints (endpoint_id, application_id, token, attributes, created_at)
VALUES ($2, $3, $4, $5::jsonb, coalesce($1::timestamptz, present()))
ON CONFLICT (application_id, token) DO NOTHING
RETURNING endpoint_id

-- name: find_endpoint_by_token
-- params: application_id, token
-- The application's endpoint with that token, by the unique index, or no row. Publishes also need
-- the application's state.
-- include: endpoint
WHERE e.application_id = $1 AND e.token = $2

-- name: find_endpoint
-- params: endpoint_id
-- The endpoint of that id, or no row, and whether its application is enabled.
-- include: endpoint
WHERE e.endpoint_id = $1

-- name: existing_endpoints
-- params: endpoint_ids
-- Returns the existing endpoints.
SELECT endpoint_id FROM platform_endpoints WHERE endpoint_id = ANY($1::uuid[])

-- name: lock_endpoint
-- params: endpoint_id
-- Serializes changes of one endpoint.
-- include: endpoint
WHERE e.endpoint_id = $1
FOR UPDATE OF e

-- name: set_endpoint
-- params: endpoint_id, token, attributes
-- Replaces both; the caller locks the row. The unique index refuses a token of another endpoint: a
-- check before would let two callers pass.
UPDATE platform_endpoints SET token = $2, attributes = $3::jsonb WHERE endpoint_id = $1

-- name: find_endpoint_of_same_application
-- params: endpoint_id, token
-- The endpoint with that token in the application of another endpoint.
SELECT other.endpoint_id
FROM platform_endpoints AS mine JOIN platform_endpoints AS other USING (application_id)
WHERE mine.endpoint_id = $1 AND other.token = $2

-- name: delete_endpoint
-- params: endpoint_id
-- Deletes the endpoint, if it exists: a second deletion is no error.
DELETE FROM platform_endpoints WHERE endpoint_id = $1

-- name: list_endpoints
-- params: application_id, after_position, limit
-- In order of creation.
-- include: endpoint
WHERE e.application_id = $1 AND e.position > $2
ORDER BY e.position LIMIT $3

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
-- Returns true if the number has opted out: one probe of the primary key, for every publish to it.
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
