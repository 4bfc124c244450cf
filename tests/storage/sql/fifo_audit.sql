-- Watches every change of FIFO tables from within: what a client sees comes too late and in another
-- order. Each finding is a row of audit_findings; what was sent and deleted is kept for the end.

CREATE TABLE audit_findings (rule text NOT NULL, detail text NOT NULL);
CREATE TABLE audit_sent (queue_id int, group_id text, sequence bigint, body text);
CREATE TABLE audit_deleted (queue_id int, group_id text, sequence bigint, body text);

CREATE FUNCTION audit_message() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF TG_OP = 'INSERT' THEN
    INSERT INTO audit_sent VALUES (NEW.queue_id, NEW.group_id, NEW.sequence, NEW.body);
  ELSE
    INSERT INTO audit_deleted VALUES (OLD.queue_id, OLD.group_id, OLD.sequence, OLD.body);
  END IF;
  RETURN NULL;
END $$;
CREATE TRIGGER audit_message AFTER INSERT OR DELETE ON fifo_messages
  FOR EACH ROW EXECUTE FUNCTION audit_message();

-- A delivery shows as a message whose count rises. While it holds the row, nobody else can change
-- the group, so whatever is true here was true when the messages went out.
CREATE FUNCTION audit_delivery() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  v_before int;
  v_taken int := 0;
  v_highest bigint;
BEGIN
  FOR i IN 1 .. cardinality(NEW.d_seq) LOOP
    v_before := array_position(OLD.d_seq, NEW.d_seq[i]);
    IF v_before IS NOT NULL AND NEW.d_rc[i] <= OLD.d_rc[v_before] THEN
      CONTINUE;
    END IF;
    v_taken := v_taken + 1;
    v_highest := NEW.d_seq[i];
    IF v_taken <> i THEN
      INSERT INTO audit_findings VALUES ('prefix', format('%s: %s after %s', NEW.group_id, OLD, NEW));
    END IF;
    IF OLD.d_until[v_before] > clock_timestamp() THEN
      INSERT INTO audit_findings VALUES ('two holders', format('%s: %s', NEW.group_id, OLD));
    END IF;
    IF v_before IS NULL AND NEW.d_seq[i] <= OLD.d_last THEN
      INSERT INTO audit_findings VALUES ('order', format('%s: %s', NEW.group_id, NEW));
    END IF;
  END LOOP;
  IF v_taken > 0 AND EXISTS (
    SELECT 1 FROM fifo_messages AS m
    WHERE m.queue_id = NEW.queue_id AND m.group_id = NEW.group_id AND m.sequence < v_highest
      AND NOT m.sequence = ANY(NEW.d_seq)) THEN
    INSERT INTO audit_findings VALUES ('passed over', format('%s: %s after %s; there are %s',
      NEW.group_id, NEW, OLD, ARRAY(
        SELECT format('%s written by %s sent %s', m.sequence, m.xmin, m.sent_at)
        FROM fifo_messages AS m
        WHERE m.queue_id = NEW.queue_id AND m.group_id = NEW.group_id AND m.sequence < v_highest
          AND NOT m.sequence = ANY(NEW.d_seq))));
  END IF;
  IF cardinality(NEW.d_seq) > 10 THEN
    INSERT INTO audit_findings VALUES ('more than ten', format('%s: %s', NEW.group_id, NEW));
  END IF;
  RETURN NULL;
END $$;
CREATE TRIGGER audit_delivery AFTER UPDATE ON fifo_groups
  FOR EACH ROW EXECUTE FUNCTION audit_delivery();

-- A group row goes with its last message.
CREATE FUNCTION audit_drop() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF EXISTS (SELECT 1 FROM fifo_messages AS m
      WHERE m.queue_id = OLD.queue_id AND m.group_id = OLD.group_id) THEN
    INSERT INTO audit_findings VALUES ('dropped with messages', format('%s', OLD));
  END IF;
  RETURN NULL;
END $$;
CREATE TRIGGER audit_drop AFTER DELETE ON fifo_groups
  FOR EACH ROW EXECUTE FUNCTION audit_drop();
