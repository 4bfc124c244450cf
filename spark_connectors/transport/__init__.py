"""Calls to services over HTTP."""
