"""Firing of schedules: sends the messages of due schedules and computes the next times."""
