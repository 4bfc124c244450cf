"""`queuegate pause` and `queuegate resume`, by the REST API of a running gateway."""

from __future__ import annotations

import argparse
from urllib.parse import quote

from queuegate.gateway.command.command_line import (
    CommandRefused,
    actions_of,
    add_gateway,
    add_options,
    plain,
)
from queuegate.gateway.command.gateway_client import GatewayClient
from queuegate.gateway.configuration.settings import Settings

_PAUSE = """\
Pause a queue, a topic or a subscription of a running gateway until `queuegate resume`. Receives
from a paused queue return no messages, on every API. Sends and deletes continue. Deliveries to the
web hooks of a paused topic or subscription wait. Publishes and copies in queues continue.

examples:
  queuegate pause queue jobs
  queuegate pause topic orders
  queuegate pause subscription arn:aws:sns:us-east-1:000000000000:orders:8f14e45f-...
"""
_RESUME = """\
Resume a paused queue, topic or subscription of a running gateway. Waiting deliveries start at once.

examples:
  queuegate resume queue jobs
"""
_NOUNS = {
    "queue": ("NAME", "name of the queue"),
    "topic": ("NAME", "name of the topic"),
    "subscription": ("ARN", "ARN of the subscription, or its end: TOPIC:ID"),
}


def add_pause_arguments(command: argparse.ArgumentParser) -> None:
    """Add the arguments of `queuegate pause`."""
    _add_arguments(command, _PAUSE, "PUT")


def add_resume_arguments(command: argparse.ArgumentParser) -> None:
    """Add the arguments of `queuegate resume`."""
    _add_arguments(command, _RESUME, "DELETE")


def _add_arguments(command: argparse.ArgumentParser, description: str, method: str) -> None:
    command.description = description
    add = actions_of(command, add_gateway)
    for noun, (metavar, text) in _NOUNS.items():
        action = add(noun, f"a {noun}", description)
        add_options(action, f"name {metavar}  {text}")
        action.set_defaults(noun=noun, method=method)


def run(settings: Settings, options: argparse.Namespace) -> int:
    """Pause or resume; return 0. Raises CommandRefused."""
    gateway = GatewayClient(settings, options, "pause")
    gateway.call(options.method, f"/v1/{_place(options.noun, options.name)}/pause")
    state = "paused" if options.method == "PUT" else "resumed"
    print(f"The {options.noun} {plain(options.name)} is {state}.")
    return 0


def _place(noun: str, name: str) -> str:
    if noun != "subscription" and name:
        return f"{noun}s/{quote(name, safe='')}"
    pattern, _, subscription_id = name.rpartition(":")
    pattern = pattern.rpartition(":")[2]
    if not pattern or not subscription_id:
        raise CommandRefused(f"'{plain(name)}' is not the {_NOUNS[noun][1]}")
    return f"events/{quote(pattern, safe='')}/subscriptions/{quote(subscription_id, safe='')}"
