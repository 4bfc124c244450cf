DELETE FROM queuegate.schedules
