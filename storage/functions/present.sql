-- revision 3
-- The time that statements go by that get no instant (migration 0007 has its first form).

-- The clock of the server. Nothing else asks it; simulations replace this function.
CREATE OR REPLACE FUNCTION server_clock() RETURNS timestamptz LANGUAGE sql VOLATILE
RETURN clock_timestamp();

-- The present: the server's clock, moved by the offset that keeps it continuous, but never before
-- the mark. Gateways and workers hand over an instant and need none of this. It is a plain
-- expression. greatest ignores the NULL of an unset mark.
CREATE OR REPLACE FUNCTION present() RETURNS timestamptz LANGUAGE sql VOLATILE
RETURN greatest(
  server_clock() + coalesce(pg_sequence_last_value('clock_offset'), 0) * interval '1 microsecond',
  to_timestamp(pg_sequence_last_value('clock_mark') / float8 '1e6'));

DROP FUNCTION IF EXISTS note_present(timestamptz);
