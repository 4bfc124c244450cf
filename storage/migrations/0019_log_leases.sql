-- By the holder first: whoever asks for positions by group and partition, with a plan that was made
-- while the table was empty, would read all positions of the group by this index else.
DROP INDEX log_positions_held_by;
CREATE INDEX log_positions_held_by ON log_positions (held_by, group_id, number);
