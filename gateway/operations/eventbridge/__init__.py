"""EventBridge Scheduler: schedules in groups, their targets and their times."""
