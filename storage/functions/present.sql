-- revision 2
-- The time that every statement goes by (migration 0007 has its first form).

-- The clock of the server. Nothing else asks it; simulations replace this function.
CREATE OR REPLACE FUNCTION server_clock() RETURNS timestamptz LANGUAGE sql VOLATILE
RETURN clock_timestamp();

-- Note an instant that a statement is about to use, so that the present never lies before it again.
-- The lock makes sure that the mark only rises. Rolling the block back releases the lock at once,
-- and not with the transaction around it; a sequence keeps its value. The value reaches the disk
-- with the commit of the transaction. COST: planners need not avoid it, for it runs rarely.
CREATE OR REPLACE FUNCTION note_present(p_present timestamptz) RETURNS timestamptz
LANGUAGE plpgsql COST 1 AS $$
BEGIN
  IF current_setting('transaction_read_only')::boolean THEN
    RETURN p_present;
  END IF;
  PERFORM pg_advisory_xact_lock(x'5147'::int, 3);
  IF p_present > to_timestamp(pg_sequence_last_value('clock_mark') / float8 '1e6') THEN
    PERFORM setval('clock_mark', (extract(epoch FROM p_present) * 1000000)::bigint);
  END IF;
  RAISE EXCEPTION SQLSTATE 'QG001';
EXCEPTION WHEN SQLSTATE 'QG001' THEN
  RETURN greatest(p_present, to_timestamp(pg_sequence_last_value('clock_mark') / float8 '1e6'));
END $$;

-- The present: the server's clock, but never before the mark. A statement whose clock is more than
-- 0.25 s ahead of the mark notes its own instant, before its rows depend on it, so the present goes
-- back by at most 0.25 s. It is a plain expression; both conditions ignore the NULL of an unset mark.
CREATE OR REPLACE FUNCTION present() RETURNS timestamptz LANGUAGE sql VOLATILE
RETURN CASE
  WHEN server_clock()
    > to_timestamp(pg_sequence_last_value('clock_mark') / float8 '1e6') + interval '250 milliseconds'
  THEN note_present(server_clock())
  ELSE greatest(server_clock(),
    to_timestamp(pg_sequence_last_value('clock_mark') / float8 '1e6')) END;
