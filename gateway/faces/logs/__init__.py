"""Logs over HTTP: publish, read, groups. Declared endpoints."""
