"""The arguments of `queuegate pause` and `queuegate resume`, which every start reads."""

from __future__ import annotations

import argparse

from queuegate.gateway.command.actions import actions_of, add_gateway

PAUSE_SUMMARY = "pause a queue, a topic or a subscription"
PAUSE = """\
Ask a running gateway for a pause, which lasts until `queuegate resume`. Receivers of a paused queue
find it empty, on every API; sends go on, and so do deletes of messages in flight. Deliveries to the
web hooks of a paused topic or subscription are kept; publishes and copies in queues go on.

examples:
  queuegate pause queue jobs
  queuegate pause topic orders
  queuegate pause subscription arn:aws:sns:us-east-1:000000000000:orders:8f14e45f-...
"""
RESUME_SUMMARY = "end a pause"
RESUME = """\
Ask a running gateway to end a pause. Everything that waits goes on at once.

examples:
  queuegate resume queue jobs
"""
_NOUNS = {
    "queue": ("NAME", "its name"),
    "topic": ("NAME", "its name"),
    "subscription": ("ARN", "its ARN, or its end: PATTERN:ID"),
}


def add_actions(command: argparse.ArgumentParser, method: str) -> None:
    """Add what can be paused, with the method of the request."""
    add = actions_of(command, add_gateway)
    for noun, (metavar, text) in _NOUNS.items():
        action = add(noun, f"a {noun}", command.description or "")
        action.add_argument("name", metavar=metavar, help=text)
        action.set_defaults(noun=noun, method=method)
