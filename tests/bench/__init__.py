"""Figures of a running gateway: load from a process of its own, never part of the test command."""
