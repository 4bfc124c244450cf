"""`queuegate pause` and `queuegate resume`, by the REST API of a running gateway."""

from __future__ import annotations

import argparse
import sys
from urllib.parse import quote

from queuegate.gateway.command.asking import Gateway, NoAnswer, Refused
from queuegate.gateway.command.stored import plain
from queuegate.gateway.configuration.settings import Settings


def run(settings: Settings, options: argparse.Namespace) -> int:
    """Pause or resume; 0, or 1 when it could not be done."""
    gateway = Gateway(settings, options, "pause")
    try:
        gateway.call(options.method, f"/v1/{_place(options.noun, options.name)}/pause")
    except (NoAnswer, Refused) as refusal:
        print(f"queuegate: {plain(str(refusal))}", file=sys.stderr)
        return 1
    state = "paused" if options.method == "PUT" else "resumed"
    print(f"The {options.noun} {plain(options.name)} is {state}.")
    return 0


def _place(noun: str, name: str) -> str:
    if noun != "subscription":
        return f"{noun}s/{quote(name, safe='')}"
    pattern, _, subscription_id = name.rpartition(":")
    pattern = pattern.rpartition(":")[2]
    return f"events/{quote(pattern, safe='')}/subscriptions/{quote(subscription_id, safe='')}"
