-- revision 1
-- Which kinds of background work there are.

-- The names of those of which there is any, due or not, in whatever account: a probe of an index for
-- each, whatever the statistics say of a table that looked empty. The names are those of
-- storage.chores.
CREATE OR REPLACE FUNCTION find_chores() RETURNS text[] LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off
AS $$
BEGIN
  RETURN array_remove(ARRAY[
    CASE WHEN EXISTS (
      SELECT FROM waiting_messages AS w ORDER BY w.queue_id, w.waiting_id LIMIT 1)
      THEN 'waiting messages' END,
    CASE WHEN EXISTS (
      SELECT FROM messages AS m WHERE m.expires_at IS NOT NULL
      ORDER BY m.queue_id, m.expires_at LIMIT 1)
    OR EXISTS (
      SELECT FROM fifo_messages AS m WHERE m.expires_at IS NOT NULL
      ORDER BY m.queue_id, m.expires_at LIMIT 1)
      THEN 'expiring messages' END,
    CASE WHEN EXISTS (
      SELECT FROM move_tasks AS t WHERE t.status = 'RUNNING' ORDER BY t.next_batch_at LIMIT 1)
      THEN 'move tasks' END,
    CASE WHEN EXISTS (
      SELECT FROM replays AS r WHERE r.due_at IS NOT NULL ORDER BY r.due_at LIMIT 1)
      THEN 'replays' END,
    CASE WHEN EXISTS (
      SELECT FROM queues AS q
      WHERE q.max_deliveries IS NOT NULL AND q.deleted_at IS NULL AND NOT q.is_fifo
      ORDER BY q.queue_id LIMIT 1)
      THEN 'own dead letters' END,
    CASE WHEN EXISTS (
      SELECT FROM schedule_groups AS g WHERE g.is_deleting ORDER BY g.group_id LIMIT 1)
      THEN 'schedule groups' END,
    CASE WHEN EXISTS (
      SELECT FROM schedules AS s WHERE s.is_active AND s.due_at IS NOT NULL
      ORDER BY s.due_at, s.schedule_id LIMIT 1)
    OR EXISTS (
      SELECT FROM schedule_invocations AS i ORDER BY i.due_at, i.invocation_id LIMIT 1)
      THEN 'schedules' END,
    CASE WHEN EXISTS (
      SELECT FROM deliveries AS d WHERE d.state = 'pending'
      ORDER BY d.subscription_id, d.due_at LIMIT 1)
      THEN 'deliveries' END,
    CASE WHEN EXISTS (SELECT FROM logs AS l ORDER BY l.log_id LIMIT 1) THEN 'logs' END
  ], NULL);
END
$$;
