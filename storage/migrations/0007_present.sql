-- The clock of statements never goes back, whatever the clock of the server does.

-- An instant, in microseconds since 1970, that was the present once: workers bring it up to date
-- every second. A sequence, for it outlives a crash, everybody sees a new value at once, and writing
-- one leaves nothing behind that a vacuum would have to remove.
CREATE SEQUENCE clock_mark;

-- The present: what the server's clock says, but never before the mark. Within a statement it is a
-- plain expression (PostgreSQL puts the body in its place) and costs a fifth of a microsecond more than the
-- clock alone. greatest passes over the NULL of a mark that was never set.
CREATE FUNCTION present() RETURNS timestamptz LANGUAGE sql VOLATILE
RETURN greatest(clock_timestamp(),
  to_timestamp(pg_sequence_last_value('clock_mark') / float8 '1e6'));

-- The functions of earlier migrations, word for word but for the clock that they ask.
DO $$
DECLARE
  v_function oid;
BEGIN
  FOR v_function IN
    SELECT p.oid FROM pg_proc AS p
    WHERE p.pronamespace = 'queuegate'::regnamespace AND p.proname <> 'present'
      AND p.prosrc LIKE '%clock\_timestamp()%'
  LOOP
    EXECUTE replace(pg_get_functiondef(v_function), 'clock_timestamp()', 'present()');
  END LOOP;
END $$;
