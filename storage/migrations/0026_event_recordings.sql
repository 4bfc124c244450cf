-- Accounts that record their events. While there is none, no table has a trigger that notes events.
CREATE SEQUENCE event_sequence AS bigint;
CREATE TABLE event_recordings (
  account_id text COLLATE "C" NOT NULL,
  recording_id bigint GENERATED ALWAYS AS IDENTITY,
  ends_at timestamptz NOT NULL,
  CONSTRAINT event_recordings_key PRIMARY KEY (account_id)
);
