UPDATE queuegate.messages AS m
SET receive_count = 1, visible_at = m.visible_at + interval '30 seconds'
WHERE m.sender_id = 'bench' AND m.receive_count = 0
