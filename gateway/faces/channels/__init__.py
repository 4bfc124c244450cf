"""Channels over HTTP: publish with priorities, poll, acknowledge. Declared endpoints."""
