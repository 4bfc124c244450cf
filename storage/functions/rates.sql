-- revision 2

-- Permits for requests of producers, in the order of the arrays, which is that of the keys: flushes
-- lock rows in one order.
--
-- A window is cut into a hundred slots. A permit counts in the slot in which it is spent at the
-- latest, and until that slot has wholly left the window; so in no window is more spent than the
-- limit, and a hundredth less at worst when everything is. The ring has the 101 slots that count,
-- and four to come.
--
-- What is needed is spent now. Where the limit is more than a hundred a second a process also gets
-- what it is going to need by `per_slot`, the requests that it had of late: until the end of this
-- slot or of one of the next four, by how much is free. It says with the next call what of that it
-- did not spend.
--
-- Where nothing is left a process learns when it may ask again: when something will be free, each of
-- those who wait in a slot of its own. So a slot costs one call, not one for each of them.
CREATE OR REPLACE FUNCTION take_permits(
  p_now timestamptz, p_account_ids text[], p_producer_ids text[], p_limits int[], p_seconds int[],
  p_needed int[], p_per_slot float8[], p_returned int[], p_returned_slots bigint[],
  OUT granted int[], OUT slots bigint[], OUT lease_ms float8[], OUT hold_ms float8[]
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  c_ring CONSTANT int := 105;
  v_window rate_windows;
  v_at float8;
  v_slot bigint;
  v_last bigint;
  v_free int;
  v_ahead int;
  v_given int;
  v_more int;
  v_first bigint;
  v_slot_ms float8;
BEGIN
  FOR i IN 1 .. cardinality(p_account_ids) LOOP
    LOOP
      SELECT w.* INTO v_window FROM rate_windows AS w
      WHERE w.account_id = p_account_ids[i] AND w.producer_id = p_producer_ids[i] FOR UPDATE;
      EXIT WHEN FOUND;
      INSERT INTO rate_windows (account_id, producer_id, window_seconds, last_slot, counts, turn)
      VALUES (p_account_ids[i], p_producer_ids[i], p_seconds[i], 0, array_fill(0, ARRAY[c_ring]), 0)
      ON CONFLICT ON CONSTRAINT rate_windows_key DO NOTHING;
    END LOOP;
    -- Behind the lock: whoever waited for it must not count in a slot that is over.
    v_slot_ms := p_seconds[i] * 10.0;
    v_at := extract(epoch FROM coalesce(p_now, present())) * 1000 / v_slot_ms;
    v_slot := floor(v_at);
    v_last := v_slot + 4;
    IF v_window.window_seconds <> p_seconds[i] OR v_window.last_slot <= v_last - c_ring
      OR v_window.last_slot > v_last + 11
    THEN
      -- Long ago, or of another limit, or a clock was set back.
      v_window.counts := array_fill(0, ARRAY[c_ring]);
      v_window.turn := 0;
    ELSE
      IF v_window.last_slot > v_last THEN
        -- By the clock of another process, which is a little ahead.
        v_last := v_window.last_slot;
        v_slot := v_last - 4;
      END IF;
      FOR n IN 1 .. v_last - v_window.last_slot LOOP
        v_window.counts[(v_window.last_slot + n) % c_ring + 1] := 0;
      END LOOP;
      IF p_returned_slots[i] BETWEEN v_last - c_ring + 1 AND v_last THEN
        v_window.counts[p_returned_slots[i] % c_ring + 1] :=
          greatest(v_window.counts[p_returned_slots[i] % c_ring + 1] - p_returned[i], 0);
      END IF;
    END IF;
    v_free := greatest(p_limits[i] - (SELECT sum(c.n) FROM unnest(v_window.counts) AS c (n)), 0);
    v_given := least(p_needed[i], v_free);
    v_window.counts[v_slot % c_ring + 1] := v_window.counts[v_slot % c_ring + 1] + v_given;
    v_free := v_free - v_given;
    v_ahead := 0;
    v_more := 0;
    IF p_limits[i] > 100 * p_seconds[i] AND v_free > 0 THEN
      v_ahead := least(40 * v_free::bigint / p_limits[i], 4);
      v_more := greatest(ceil(p_per_slot[i] * (v_ahead + 1)) - v_given, 0);
      v_more := least(v_more, CASE WHEN v_ahead > 0 THEN v_free / 4 ELSE v_free END);
      v_window.counts[(v_slot + v_ahead) % c_ring + 1] :=
        v_window.counts[(v_slot + v_ahead) % c_ring + 1] + v_more;
    END IF;
    hold_ms[i] := 0;
    IF v_more = v_free THEN
      v_first := v_slot - 100;
      WHILE v_first < v_last AND v_window.counts[v_first % c_ring + 1] = 0 LOOP
        v_first := v_first + 1;
      END LOOP;
      v_first := v_first + 101;
      v_window.turn := least(greatest(v_window.turn + 1, v_first), v_first + 7);
      hold_ms[i] := (v_window.turn - v_at) * v_slot_ms;
    END IF;
    granted[i] := v_given + v_more;
    slots[i] := v_slot + v_ahead;
    lease_ms[i] := greatest((slots[i] + 1 - v_at) * v_slot_ms, 0);
    UPDATE rate_windows AS w
    SET window_seconds = p_seconds[i], last_slot = v_last, counts = v_window.counts,
      turn = v_window.turn
    WHERE w.account_id = p_account_ids[i] AND w.producer_id = p_producer_ids[i];
  END LOOP;
END $$;
