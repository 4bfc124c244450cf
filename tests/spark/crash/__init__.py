"""Kill a job at a named point, start it again, and see that every message arrived once."""
