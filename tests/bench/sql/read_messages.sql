SELECT count(*) FROM queuegate.messages AS m WHERE m.sequence % 7 = 0
