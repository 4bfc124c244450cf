DELETE FROM queuegate.messages AS m WHERE m.sender_id = 'bench'
