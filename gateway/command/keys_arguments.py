"""The arguments of `queuegate keys`: light, for every start of the command reads them."""

from __future__ import annotations

import argparse

from gateway.command.actions import AddPlace, actions_of, whole_number

SUMMARY = "make, list and revoke keys by which clients say who they are"
DESCRIPTION = """\
Make, list and revoke the keys that clients show, in the header X-Api-Key or Authorization: Bearer.
Works while the gateway runs, and while it does not: all gateways on the database know at once. A
key names its account on every API, and may have a rate limit. It is printed once: the database has
a hash of it.

examples:
  queuegate keys create shop
  queuegate keys create shop --account 111122223333 --rate 500/s --expires 2030-01-31
  queuegate keys list
  queuegate keys revoke 17
"""

_CREATE = """\
Make a key and print it. Nobody can print it again: whoever loses it gets another one.

examples:
  queuegate keys create shop
  queuegate keys create shop --rate 5000/10m --json
"""
_LIST = "List keys by number, without those that were revoked; none shows its secret."
_REVOKE = "Revoke keys. Gateways that run refuse them at once."


def add_actions(command: argparse.ArgumentParser, add_database: AddPlace) -> None:
    """Add what `queuegate keys` can do."""
    add = actions_of(command, add_database)
    create = add("create", "make a key", _CREATE)
    create.add_argument("name", metavar="NAME", help="of letters, digits, periods, - and _")
    create.add_argument(
        "--account", metavar="ID", help="whose it is (default: that of QUEUEGATE_ACCOUNT_ID)"
    )
    create.add_argument("--rate", metavar="R", help="requests/time, such as 500/s or 5000/10m")
    create.add_argument("--expires", metavar="T", help="a date or instant of ISO 8601, in UTC")
    listing = add("list", "list keys", _LIST)
    listing.add_argument("--account", metavar="ID", help="only those of this account")
    listing.add_argument("--all", action="store_true", help="also those that were revoked")
    revoke = add("revoke", "revoke keys", _REVOKE)
    revoke.add_argument(
        "ids", nargs="+", type=whole_number, metavar="ID", help="as `list` shows them"
    )
    for action in (create, listing, revoke):
        action.add_argument("--json", action="store_true", help="one JSON object a line")
