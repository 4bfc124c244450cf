"""The arguments of `queuegate quotas`: light, for every start of the command reads them."""

from __future__ import annotations

import argparse

from queuegate.gateway.command.actions import AddPlace, actions_of, add_url

SUMMARY = "limit what accounts may have, and how often accounts and keys may ask"
DESCRIPTION = """\
Limit what an account may have, and how often it, or a key, may ask, where that is to be different
from what QUEUEGATE_QUOTA_... says of all. Works while the gateway runs, and while it does not: all
gateways on the database know within a second.

examples:
  queuegate quotas list
  queuegate quotas set 111122223333 --requests 500/s --queues 100
  queuegate quotas set 111122223333 --topics any
  queuegate quotas set 444455556666 --bytes 10MB/s
  queuegate quotas set key-17 --requests 50/s
  queuegate quotas remove 111122223333
"""
_SET = """\
Set the quota of an account or a key, all of it: what is not named is left to the settings. `any` is
no limit, whatever these say.

examples:
  queuegate quotas set 111122223333 --requests 500/s --queues 100
  queuegate quotas set key-17 --requests 50/s
"""
_LIST = "List accounts and keys with quotas of their own."
_REMOVE = "Leave accounts or keys to the settings again."


def add_actions(command: argparse.ArgumentParser, add_database: AddPlace) -> None:
    """Add what `queuegate quotas` can do."""

    def add_place(action: argparse.ArgumentParser) -> None:
        add_database(action)
        add_url(action)

    add = actions_of(command, add_place)
    add("list", "list quotas", _LIST)
    change = add("set", "set a quota", _SET)
    change.add_argument("subject", metavar="WHOSE", help="an account, or key-17")
    change.add_argument("--requests", metavar="R", help="requests/time, such as 500/s, or any")
    change.add_argument("--bytes", metavar="R", help="bytes/time, such as 10MB/s, or any")
    for kind in ("queues", "topics", "subscriptions", "logs"):
        change.add_argument(f"--{kind}", metavar="N", help=f"{kind} that it may have, or any")
    remove = add("remove", "leave accounts or keys to the settings", _REMOVE)
    remove.add_argument("subjects", nargs="+", metavar="WHOSE", help="as `list` shows them")
