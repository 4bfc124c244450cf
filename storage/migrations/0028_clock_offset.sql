-- Microseconds that the present is ahead of the server's clock. A process that finds the clock stepped
-- changes it by as much, so that the present goes on. A sequence, for the reasons of clock_mark.
CREATE SEQUENCE clock_offset MINVALUE -9223372036854775807 START 0;
