"""The arguments of `queuegate log`: light, for every start of the command reads them."""

from __future__ import annotations

import argparse

from queuegate.gateway.command.actions import (
    AddAction,
    actions_of,
    add_gateway,
    age,
    assignment,
    whole_number,
)

SUMMARY = "look at logs and their groups, publish, seek, and see to dead letters"
DESCRIPTION = """\
Ask a running gateway about its logs. What deletes asks before, unless --yes is given; --json prints
one JSON object a line.

examples:
  queuegate log publish orders '{"order": 42}' --partition-key repo-1
  queuegate log list
  queuegate log tail orders --from-start
  queuegate log lag orders
  queuegate log seek orders billing --to 2030-01-31T09:00:00Z
  queuegate log dead-letters requeue orders --all
"""

_LIST = "List logs by name, with how much is in them."
_CREATE = """\
Make a log with settings. A log that is published to is made without any: a partition for each key,
and what all groups are done with stays for an hour.

examples:
  queuegate log create orders
  queuegate log create clicks --partitions 16 --retain-consumed none --max-age 7d
"""
_SHOW = "Show what is known of a log, and its groups."
_GROUPS = "List the groups of a log with their settings, and who subscribes."
_LAG = """\
How far groups are: how many records each is not done with, how many are out, and the age of the
oldest that it is not done with. With a group, by partition: those that it is not done with.

examples:
  queuegate log lag orders
  queuegate log lag orders billing
"""
_RECORDS = """\
List records as they are in the log: no group is concerned. Without --partition those of all
partitions, one after the other.

examples:
  queuegate log records orders --limit 20
  queuegate log records orders --partition 3 --from 1000 --json
"""
_RECORD = "Show all that is known of one record, with its payload."
_PUBLISH = """\
Append a record, to a log that is made if it is not there. - is standard input, of which each line
is a record; they go in order, a thousand with each request. Nothing is appended twice when a
request has to be repeated.

examples:
  queuegate log publish orders '{"order": 42}' --partition-key repo-1 --metadata tenant=acme
  queuegate log publish clicks - --partition-key web < clicks.jsonl
"""
_TAIL = """\
Print records as they are published, until Ctrl-C. No group is concerned.

examples:
  queuegate log tail orders
  queuegate log tail orders --from-start --json
"""
_CONSUME = """\
Print records as a group gets them and acknowledge each, until Ctrl-C or --limit. It is one more
subscriber of the group, which is made if it is not there.

examples:
  queuegate log consume orders billing
  queuegate log consume orders billing --limit 1 --json
"""
_DELETE = "Delete a log with its records and groups for good. Its dead letters stay."
_DELETE_RECORD = "Delete one record for all groups."
_DELETE_GROUP = "Delete a group: nobody knows any more how far it was. The log stays as it is."
_PURGE = "Delete all records of a log. Groups stay, and offsets go on."
_SEEK = """\
Let a group go on elsewhere: at the first record, at the next one, or at a time. What its
subscribers have out is void. --offset sets some partitions only.

examples:
  queuegate log seek orders billing --to earliest
  queuegate log seek orders billing --to 2030-01-31T09:00:00Z
  queuegate log seek orders billing --offset 3=1000 --offset 4=17
"""
_DEAD = """\
Dead letters of a log: what a group gave up. They are records of a log of their own.

examples:
  queuegate log dead-letters list orders
  queuegate log dead-letters requeue orders 0:17 0:18
  queuegate log dead-letters purge orders --yes
"""
_DEAD_LIST = "List dead letters, the oldest first."
_REQUEUE = """\
Publish dead letters to where they came from again, for the group that gave them up.

examples:
  queuegate log dead-letters requeue orders --all
  queuegate log dead-letters requeue orders 0:17 0:18
"""
_DEAD_PURGE = "Delete all dead letters of a log for good."


def add_actions(command: argparse.ArgumentParser) -> None:
    """Add what `queuegate log` can do."""

    def further(name: str, summary: str, text: str) -> argparse.ArgumentParser:
        action = add(name, summary, text)
        _finish(action, name)
        return action

    add = actions_of(command, _add_nothing)
    _add_looking(further)
    _add_changing(further)
    dead = add("dead-letters", "list, requeue and purge what groups gave up", _DEAD)
    add_dead = actions_of(dead, _add_nothing)
    for name, summary, text in (
        ("list", "list them", _DEAD_LIST),
        ("requeue", "publish them again", _REQUEUE),
        ("purge", "delete all of them", _DEAD_PURGE),
    ):
        action = add_dead(name, summary, text)
        _finish(action, f"dead-letters {name}")
        if name == "list":
            action.add_argument("--group", metavar="G", help="only what this group gave up")
            _add_limit(action)
        elif name == "requeue":
            which = action.add_mutually_exclusive_group(required=True)
            which.add_argument("--all", action="store_true", help="all of them")
            which.add_argument(
                "which",
                nargs="*",
                type=_place,
                default=[],
                metavar="PARTITION:OFFSET",
                help="only these, as `list` shows them",
            )


def _add_nothing(_: argparse.ArgumentParser) -> None:
    """Where the gateway is comes last: what was given to `dead-letters` would count for nothing."""


def _finish(action: argparse.ArgumentParser, name: str) -> None:
    """What all have."""
    action.set_defaults(does=name)
    add_gateway(action)
    action.add_argument("--json", action="store_true", help="one JSON object a line")
    if name != "list":
        action.add_argument("log", metavar="LOG", help="its name")
    if name in {"delete", "delete-record", "delete-group", "purge", "dead-letters purge", "seek"}:
        action.add_argument("--yes", action="store_true", help="do not ask")


def _add_looking(add: AddAction) -> None:
    add("list", "list logs", _LIST).add_argument(
        "--prefix", metavar="P", help="only those whose names begin so"
    )
    add("show", "show one, with its groups", _SHOW)
    add("groups", "list the groups of a log", _GROUPS)
    lag = add("lag", "how far groups are", _LAG)
    lag.add_argument("group", nargs="?", metavar="GROUP", help="this one, by partition")
    lag.add_argument("--all", action="store_true", help="also partitions without a lag")
    records = add("records", "list records", _RECORDS)
    _add_partition(records)
    records.add_argument(
        "--from", type=_offset, default=0, dest="start", metavar="OFFSET", help="default: 0"
    )
    _add_limit(records)
    _add_one(add("record", "show one in full", _RECORD))
    tail = add("tail", "print records as they are published", _TAIL)
    tail.add_argument("--from-start", action="store_true", help="what is there already, too")
    _add_partition(tail)


def _add_changing(add: AddAction) -> None:
    create = add("create", "make a log", _CREATE)
    create.add_argument(
        "--partitions", type=whole_number, metavar="N", help="(default: one for each key)"
    )
    create.add_argument(
        "--retain-consumed",
        type=_age_or_none,
        metavar="AGE",
        help="how long what all groups are done with stays: 90s, 15m, 6h, 2d, or none: for ever",
    )
    create.add_argument("--max-age", type=_age_or_none, metavar="AGE", help="of any record")
    create.add_argument(
        "--max-bytes", type=whole_number, metavar="N", help="of all records; the oldest go"
    )
    publish = add("publish", "append records", _PUBLISH)
    publish.add_argument("payload", metavar="PAYLOAD", help="text; -: lines of standard input")
    publish.add_argument(
        "--partition-key", default="", metavar="K", help="records of a key keep their order"
    )
    publish.add_argument("--id", metavar="ID", help="the same again is no second record")
    publish.add_argument(
        "--metadata",
        action="append",
        default=[],
        type=assignment,
        metavar="NAME=VALUE",
        help="may be repeated",
    )
    consume = add("consume", "print records as a group gets them", _CONSUME)
    consume.add_argument("group", metavar="GROUP")
    consume.add_argument("--limit", type=whole_number, metavar="N", help="leave after so many")
    add("delete", "delete a log", _DELETE)
    _add_one(add("delete-record", "delete one record", _DELETE_RECORD))
    add("delete-group", "delete a group", _DELETE_GROUP).add_argument("group", metavar="GROUP")
    add("purge", "delete all records", _PURGE)
    seek = add("seek", "let a group go on elsewhere", _SEEK)
    seek.add_argument("group", metavar="GROUP")
    where = seek.add_mutually_exclusive_group(required=True)
    where.add_argument("--to", metavar="WHERE", help="earliest, latest, or an instant of ISO 8601")
    where.add_argument(
        "--offset",
        action="append",
        default=[],
        type=_seek_place,
        metavar="PARTITION=OFFSET",
        help="the next record of a partition; may be repeated",
    )


def _add_one(action: argparse.ArgumentParser) -> None:
    action.add_argument("partition", type=_offset, metavar="PARTITION")
    action.add_argument("offset", type=_offset, metavar="OFFSET")


def _add_partition(action: argparse.ArgumentParser) -> None:
    action.add_argument("--partition", type=_offset, metavar="N", help="only this one")


def _add_limit(action: argparse.ArgumentParser) -> None:
    action.add_argument("--limit", type=whole_number, default=50, metavar="N", help="default: 50")


def _offset(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 0")
    return int(text)


def _pair(text: str, between: str, example: str) -> tuple[int, int]:
    partition, found, offset = text.partition(between)
    if not found:
        raise argparse.ArgumentTypeError(f"{text!r} is not {example}")
    return _offset(partition), _offset(offset)


def _place(text: str) -> tuple[int, int]:
    return _pair(text, ":", "PARTITION:OFFSET, such as 0:17")


def _seek_place(text: str) -> tuple[int, int]:
    return _pair(text, "=", "PARTITION=OFFSET, such as 0=17")


def _age_or_none(text: str) -> int | str:
    return text if text == "none" else int(age(text))
