"""`queuegate save`, `load` and `states`, by the pages of a running gateway."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from urllib.parse import quote

from queuegate.gateway.command.command_line import (
    CommandRefused,
    add_gateway,
    add_json,
    add_options,
    counted,
    plain,
    print_lines,
    print_table,
)
from queuegate.gateway.command.gateway_client import GatewayClient
from queuegate.gateway.configuration.settings import Settings

_SAVE = """\
Save an account under a name: queues, topics, subscriptions, schedules, channels and logs, with all
messages, leases and positions. The state is stored in the database of the gateway, in place of an
earlier one of the name. Clients are not interrupted. Keys, quotas and the clock are not saved.

examples:
  queuegate save ten-orders
  queuegate save ten-orders --account 111122223333 --url http://127.0.0.1:4566
"""
_LOAD = """\
Replace an account by a saved state, in one transaction. What the account has now is deleted, with
its messages; other accounts, keys and quotas stay. Times continue: a lease or delay that had 20 s
left when it was saved has 20 s left again.

examples:
  queuegate load ten-orders
"""
_STATES = """\
List the saved states of an account, or delete one.

examples:
  queuegate states --json
  queuegate states --delete ten-orders
"""
_MESSAGES = ("messages", "fifo_messages", "waiting_messages")


def add_save_arguments(command: argparse.ArgumentParser) -> None:
    """Add the arguments of `queuegate save`."""
    _add_arguments(command, _SAVE, "PUT")


def add_load_arguments(command: argparse.ArgumentParser) -> None:
    """Add the arguments of `queuegate load`."""
    _add_arguments(command, _LOAD, "POST")


def add_states_arguments(command: argparse.ArgumentParser) -> None:
    """Add the arguments of `queuegate states`."""
    command.description = _STATES
    add_options(command, "--delete NAME  delete this state")
    add_json(command)
    add_gateway(command)
    command.set_defaults(method="GET")


def _add_arguments(command: argparse.ArgumentParser, description: str, method: str) -> None:
    command.description = description
    add_options(command, "name NAME  name of the state: letters, digits, dots, hyphens")
    add_gateway(command)
    command.set_defaults(method=method)


def run(settings: Settings, options: argparse.Namespace) -> int:
    """Save, load, list or delete; return 0. Raises CommandRefused."""
    gateway = GatewayClient(settings, options, "save")
    path = "/_admin/states"
    changes = options.method != "GET"
    name: str = options.name if changes else options.delete or ""
    if "/" in name or (changes and not name):
        # The path has no place for such a name, so the gateway would not see it as one.
        raise CommandRefused(f"'{plain(name)}' is no name: letters, digits, dots, hyphens, _")
    if changes:
        state = gateway.call(options.method, f"{path}/{quote(name, safe='')}")
        done = "Saved" if options.method == "PUT" else "Loaded"
        print(f"{done} {plain(state['name'])}: {contents(state['rows'])}.")
    elif name:
        gateway.call("DELETE", f"{path}/{quote(name, safe='')}")
        print(f"Deleted the state {plain(name)}.")
    elif options.json:
        print_lines(gateway.call("GET", path)["states"])
    else:
        states = gateway.call("GET", path)["states"]
        rows = [(state["name"], state["saved_at"], contents(state["rows"])) for state in states]
        print_table(("NAME", "SAVED", "CONTENTS"), rows)
    return 0


def contents(rows: Mapping[str, int]) -> str:
    """Return the numbers of messages, queues, topics and logs of rows by table."""
    messages = sum(rows.get(name, 0) for name in _MESSAGES)
    parts = [counted(rows.get(f"{noun}s", 0), noun) for noun in ("queue", "topic", "log")]
    return ", ".join([counted(messages, "message"), *parts])
