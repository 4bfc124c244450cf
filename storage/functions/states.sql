-- revision 1
-- Saved states of accounts.

-- The tables with the state of an account, parents first, and a condition for its rows. $1 is the
-- account. $2 is the state that replaces the rows, or NULL: then deleted queues and logs count, too,
-- and what is left of deleted parents that the state has. Keys, quotas and clocks belong to no state.
CREATE OR REPLACE FUNCTION state_tables()
RETURNS TABLE (place int, table_name text, condition text) LANGUAGE sql IMMUTABLE AS $$
WITH RECURSIVE listed (place, table_name, key, parent, parent_key) AS (VALUES
  (1, 'queues', '', '', ''),
  (2, 'messages', 'queue_id', 'queues', 'queue_id'),
  (3, 'fifo_messages', 'queue_id', 'queues', 'queue_id'),
  (4, 'fifo_groups', 'queue_id', 'queues', 'queue_id'),
  (5, 'fifo_dedup', 'queue_id', 'queues', 'queue_id'),
  (6, 'fifo_attempts', 'queue_id', 'queues', 'queue_id'),
  (7, 'queue_deltas', 'queue_id', 'queues', 'queue_id'),
  (8, 'waiting_messages', 'queue_id', 'queues', 'queue_id'),
  (9, 'message_archive', 'queue_id', 'queues', 'queue_id'),
  (10, 'move_tasks', 'source_queue_id', 'queues', 'queue_id'),
  (11, 'topics', '', '', ''),
  (12, 'subscriptions', 'topic_id', 'topics', 'topic_id'),
  (13, 'ended_subscriptions', 'topic_id', 'topics', 'topic_id'),
  (14, 'topic_dedup', 'topic_id', 'topics', 'topic_id'),
  (15, 'topic_archive', 'topic_id', 'topics', 'topic_id'),
  (16, 'replays', 'topic_id', 'topics', 'topic_id'),
  (17, 'deliveries', '', '', ''),
  (18, 'outbox', '', '', ''),
  (19, 'platform_applications', '', '', ''),
  (20, 'platform_endpoints', 'application_id', 'platform_applications', 'application_id'),
  (21, 'sms_attributes', '', '', ''),
  (22, 'sms_opted_out', '', '', ''),
  (23, 'sms_sandbox_numbers', '', '', ''),
  (24, 'schedule_groups', '', '', ''),
  (25, 'schedules', '', '', ''),
  (26, 'schedule_invocations', '', '', ''),
  (27, 'logs', '', '', ''),
  (28, 'log_partitions', 'log_id', 'logs', 'log_id'),
  (29, 'log_records', 'partition_id', 'log_partitions', 'partition_id'),
  (30, 'log_groups', 'log_id', 'logs', 'log_id'),
  (31, 'log_subscribers', 'group_id', 'log_groups', 'group_id'),
  (32, 'log_positions', 'group_id', 'log_groups', 'group_id')
), found (place, table_name, condition) AS (
  SELECT l.place, l.table_name, 'account_id = $1'
    || CASE WHEN l.table_name IN ('queues', 'logs') THEN ' AND (deleted_at IS NULL OR $2 IS NOT NULL)'
       ELSE '' END
  FROM listed AS l WHERE l.parent = ''
  UNION ALL
  SELECT l.place, l.table_name, format(
    '%1$I = ANY(ARRAY(SELECT %2$I FROM %3$I WHERE %4$s UNION ALL SELECT (content ->> %2$L)::bigint'
    ' FROM state_rows WHERE state_id = $2 AND table_name = %3$L))',
    l.key, l.parent_key, l.parent, f.condition)
  FROM found AS f JOIN listed AS l ON l.parent = f.table_name
)
SELECT f.place, f.table_name, f.condition FROM found AS f ORDER BY f.place
$$;

-- The rows of an account, at one instant: STABLE, so all tables are read with the snapshot of the
-- statement that calls it.
CREATE OR REPLACE FUNCTION state_of(p_account_id text)
RETURNS TABLE (table_name text, content json) LANGUAGE plpgsql STABLE
SET enable_seqscan = off AS $$
DECLARE
  v_table record;
BEGIN
  FOR v_table IN SELECT t.table_name, t.condition FROM state_tables() AS t LOOP
    RETURN QUERY EXECUTE format('SELECT %L, row_to_json(s) FROM %I AS s WHERE %s',
      v_table.table_name, v_table.table_name, v_table.condition) USING p_account_id, NULL::bigint;
  END LOOP;
END
$$;

-- An expression for a column of a saved row `s`, with times moved by the interval $2. Schedules name
-- absolute times, and the public id of a queue contains its creation. A position of a log's group
-- starts with a time in milliseconds, then has four numbers for each span, the second is a time.
CREATE OR REPLACE FUNCTION moved_column(p_table text, p_column name, p_type regtype)
RETURNS text LANGUAGE sql IMMUTABLE AS $$
SELECT CASE
  WHEN p_table = 'schedules' OR p_table = 'queues' AND p_column = 'created_at'
    THEN format('s.%I', p_column)
  WHEN p_type = 'timestamptz'::regtype THEN format('s.%I + $2', p_column)
  WHEN p_type = 'timestamptz[]'::regtype THEN format(
    'ARRAY(SELECT u.v + $2 FROM unnest(s.%I) WITH ORDINALITY AS u (v, n) ORDER BY u.n)', p_column)
  WHEN p_table = 'log_positions' AND p_column = 'spans' THEN
    'ARRAY(SELECT CASE WHEN u.v > 0 AND (u.n = 1 OR u.n % 4 = 3)'
    ' THEN u.v + (extract(epoch FROM $2) * 1000)::bigint ELSE u.v END'
    ' FROM unnest(s.spans) WITH ORDINALITY AS u (v, n) ORDER BY u.n)'
  ELSE format('s.%I', p_column) END
$$;

-- Locks the tables against all writers until the transaction ends, so that no send or receive is half
-- before a load and half after. 55P03 if a lock takes longer than `p_patience`: while that is less
-- than the deadlock timeout, the loader gives way, and no client does.
CREATE OR REPLACE FUNCTION hold_state_tables(p_patience text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  PERFORM set_config('lock_timeout', p_patience, true);
  EXECUTE (SELECT format('LOCK TABLE %s IN EXCLUSIVE MODE',
    string_agg(t.table_name, ', ' ORDER BY t.place)) FROM state_tables() AS t);
END
$$;

-- Replaces the rows of an account by those of a saved state, with times moved by `p_shift`. The
-- caller locks the tables (`hold_state_tables`).
CREATE OR REPLACE FUNCTION load_state(p_state_id bigint, p_account_id text, p_shift interval)
RETURNS void LANGUAGE plpgsql SET enable_seqscan = off AS $$
DECLARE
  v_table record;
  v_columns text;
  v_values text;
BEGIN
  FOR v_table IN SELECT t.* FROM state_tables() AS t ORDER BY t.place DESC LOOP
    EXECUTE format('DELETE FROM %I WHERE %s', v_table.table_name, v_table.condition)
    USING p_account_id, p_state_id;
  END LOOP;
  FOR v_table IN SELECT t.* FROM state_tables() AS t LOOP
    SELECT string_agg(quote_ident(a.attname), ', ' ORDER BY a.attnum),
      string_agg(moved_column(v_table.table_name, a.attname, a.atttypid), ', ' ORDER BY a.attnum)
    INTO v_columns, v_values
    FROM pg_attribute AS a
    WHERE a.attrelid = v_table.table_name::regclass AND a.attnum > 0 AND NOT a.attisdropped;
    EXECUTE format(
      'INSERT INTO %1$I (%2$s) OVERRIDING SYSTEM VALUE SELECT %3$s FROM state_rows AS r,'
      ' json_populate_record(NULL::%1$I, r.content) AS s'
      ' WHERE r.state_id = $1 AND r.table_name = %1$L ORDER BY r.position',
      v_table.table_name, v_columns, v_values) USING p_state_id, p_shift;
  END LOOP;
END
$$;
