"""The arguments of `queuegate deliveries`: light, for every start of the command reads them."""

from __future__ import annotations

import argparse

from queuegate.gateway.command.actions import AddPlace, actions_of, whole_number

SUMMARY = "look at deliveries to web hooks, and redrive those that were given up"
DESCRIPTION = """\
Look at deliveries to web hooks, and try those again that were given up. Works while the gateway
runs, and while it does not. A delivery is pending until its web hook has taken it; after its last
attempt it goes to the dead-letter queue of its subscription, or stays here as exhausted.

examples:
  queuegate deliveries summary
  queuegate deliveries list --stuck
  queuegate deliveries show 4711
  queuegate deliveries redrive --all --topic arn:aws:sns:us-east-1:000000000000:orders
  queuegate deliveries delete 4711 4712
"""

_LIST = """\
List deliveries, the oldest first. Stuck are those that are pending although an attempt failed or
its outcome is unknown, and those that should have been begun a minute ago.
"""
_SHOW = "Show all that is known of one delivery, with its body."
_SUMMARISE = """\
One line for each endpoint: pending deliveries, the age of the oldest, exhausted ones, and lost
attempts: those without a known outcome that were repeated, so the endpoint may have two of a kind.
"""
_REDRIVE = "Try exhausted deliveries again, at once and from the first attempt on."
_DELETE = """\
Delete deliveries for good. --all deletes exhausted ones only; an ID deletes whatever it names.
"""


def add_actions(command: argparse.ArgumentParser, add_database: AddPlace) -> None:
    """Add what `queuegate deliveries` can do."""
    add = actions_of(command, add_database)
    listing = add("list", "list deliveries", _LIST)
    state = listing.add_mutually_exclusive_group()
    state.add_argument("--pending", action="store_true", help="only those still to be made")
    state.add_argument("--exhausted", action="store_true", help="only those given up")
    state.add_argument("--stuck", action="store_true", help="only pending ones in trouble")
    _add_topic(listing)
    listing.add_argument("--endpoint", metavar="URL", help="only those to this URL")
    listing.add_argument("--limit", type=whole_number, default=50, metavar="N", help="default: 50")
    listing.add_argument("--json", action="store_true", help="one JSON object a line")
    summary = add("summary", "count them by endpoint", _SUMMARISE)
    _add_topic(summary)
    summary.add_argument("--limit", type=whole_number, default=50, metavar="N", help="default: 50")
    summary.add_argument("--json", action="store_true", help="one JSON object a line")
    show = add("show", "show one in full", _SHOW)
    show.add_argument("id", type=whole_number, metavar="ID", help="as `list` shows it")
    show.add_argument("--json", action="store_true", help="as a JSON object")
    _add_choice(add("redrive", "try exhausted ones again", _REDRIVE))
    delete = add("delete", "delete them for good", _DELETE)
    _add_choice(delete)
    delete.add_argument("--yes", action="store_true", help="do not ask")


def _add_choice(action: argparse.ArgumentParser) -> None:
    which = action.add_mutually_exclusive_group(required=True)
    which.add_argument("--all", action="store_true", help="all exhausted ones")
    which.add_argument(
        "ids", nargs="*", type=whole_number, default=[], metavar="ID", help="only these"
    )
    _add_topic(action)


def _add_topic(action: argparse.ArgumentParser) -> None:
    action.add_argument("--topic", metavar="ARN", help="only those of this topic")
