-- revision 1

-- From the commit on receives of the queue go by priority and by when its messages expire, and every
-- process drops what it cached of it (storage/notifications.py). Answers the queue.
CREATE OR REPLACE FUNCTION prioritise(p_queue_id int) RETURNS int LANGUAGE plpgsql AS $$
BEGIN
  UPDATE queues SET has_priorities = true WHERE queue_id = p_queue_id AND NOT has_priorities;
  IF FOUND THEN
    PERFORM pg_notify('queuegate', format('* Q %s:1', p_queue_id));
  END IF;
  RETURN p_queue_id;
END
$$;
