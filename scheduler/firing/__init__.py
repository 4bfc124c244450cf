"""Firing schedules: what is due becomes messages, and what is next."""
