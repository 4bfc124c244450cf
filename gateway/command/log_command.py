"""`queuegate log`: logs, groups, records and dead letters of a running gateway."""

from __future__ import annotations

import argparse
import base64
import itertools
import json
import math
import secrets
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from queuegate.gateway.command.command_line import (
    CommandRefused,
    add_json,
    age,
    assignment,
    counted,
    plain,
    print_facts,
    print_lines,
    whole_number,
)
from queuegate.gateway.command.gateway_actions import YES, ActionClient, Actions, cell
from queuegate.gateway.command.gateway_client import GatewayClient
from queuegate.gateway.configuration.settings import Settings

_DESCRIPTION = """\
Inspect and manage logs through a running gateway. Actions that delete ask for confirmation, unless
--yes is given. --json prints one JSON object a line.

examples:
  queuegate log publish orders '{"order": 42}' --partition-key repo-1
  queuegate log list
  queuegate log tail orders --from-start
  queuegate log lag orders
  queuegate log seek orders billing --to 2030-01-31T09:00:00Z
  queuegate log dead-letters requeue orders --all
"""
_DEAD = """\
List, requeue and purge dead letters: records that a group dead-lettered. Dead letters are stored in
a separate log.

examples:
  queuegate log dead-letters list orders
  queuegate log dead-letters requeue orders 0:17 0:18
  queuegate log dead-letters purge orders --yes
"""
_LAG_OPTIONS = """\
[group] GROUP  show the lag of this group by partition
--all          also show partitions without a lag
"""
_PARTITION = "--partition N  only this partition"
_GROUP = "group GROUP  name of the group"
_RECORD = "partition PARTITION  its partition\noffset OFFSET  its offset"
_MOST_SHOWN = 50
_LIMIT = f"--limit N  maximum number (default: {_MOST_SHOWN})"
_CREATE_OPTIONS = """\
--partitions N         number of partitions (default: one for each key)
--retain-consumed AGE  retention of consumed records: 90s, 15m, 6h, 2d, or none: unlimited
--max-age AGE          maximum age of a record
--max-bytes N          maximum size; the oldest records are deleted
"""
_PUBLISH_OPTIONS = """\
payload PAYLOAD            text, or -: the lines of standard input
--partition-key K          key; records of one key keep their order
--id ID                    deduplication id of the record
--metadata NAME=VALUE ...  metadata of the record; may be repeated
"""
_SEEK_OPTIONS = """\
--to WHERE                     earliest, latest, or an instant of ISO 8601
--offset PARTITION=OFFSET ...  next offset of a partition; may be repeated
"""
_REQUEUE_OPTIONS = """\
--all                         requeue all dead letters
[which] PARTITION:OFFSET ...  requeue only these, as `list` shows them
"""
_LOGS_PER_PAGE = 100

_PER_PAGE = 1_000
_TAIL_SECONDS = 0.5
_CONSUME_SECONDS = 5
_CONSUMED_AT_ONCE = 10
_RECORD_COLUMNS = ("partition", "offset", "key", "id", "published_at")


_action = Actions(
    "log LOG  name of the log",
    {"dead-letters": ("list, requeue and purge dead letters", _DEAD)},
)


def add_arguments(command: argparse.ArgumentParser) -> None:
    """Add the actions of `queuegate log`."""
    command.description = _DESCRIPTION
    _action.add_to(command, add_json, parsers=_TYPES, choices=_PLACES)


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


_TYPES: dict[str, Callable[[str], object]] = {
    "partition": _offset,
    "offset": _offset,
    "from": _offset,
    "limit": whole_number,
    "partitions": whole_number,
    "retain_consumed": _age_or_none,
    "max_age": _age_or_none,
    "max_bytes": whole_number,
    "metadata": assignment,
}
"""Parsers of options, by name."""
_PLACES = {"offset": _seek_place, "which": _place}


def run(settings: Settings, options: argparse.Namespace) -> int:
    """Run the action; return 0, or 1 if it was refused."""
    return LogsApi(GatewayClient(settings, options, "log"), options).run()


class LogsApi(ActionClient):
    """A client of the logs API, with the options and the output of one action."""

    prefix = "/v1/logs"

    @property
    def log(self) -> str:
        """Return the name of the log, as it was given."""
        return str(self.options.log)

    def call(
        self, method: str, *parts: object, body: object = None, **query: object
    ) -> dict[str, Any]:
        """Request a path below the log; return the JSON object of the response."""
        answer: dict[str, Any] = self.call_all(method, self.log, *parts, body=body, **query)
        return answer

    def pages(self, *parts: object) -> Iterator[dict[str, Any]]:
        """Yield the partitions of a paged list."""
        after: int | None = None
        while True:
            page = self.call("GET", *parts, after=after, max=_PER_PAGE)["partitions"]
            yield from page
            if len(page) < _PER_PAGE:
                return
            after = page[-1]["partition"]


def text_of(record: dict[str, Any]) -> str:
    """Decode the payload for a terminal."""
    payload = str(record["payload"])
    if record.get("encoding") != "base64":
        return payload
    return base64.b64decode(payload).decode("utf-8", "backslashreplace")


@_action("list", "list logs", "--prefix P  list only logs with this prefix")
def _list(client: LogsApi) -> None:
    """List logs by name, with their sizes."""
    found: list[dict[str, Any]] = []
    while True:
        after = found[-1]["log"] if found else None
        page = client.call_all(
            "GET", prefix=client.options.prefix, after=after, max=_LOGS_PER_PAGE
        )["logs"]
        found += page
        if len(page) < _LOGS_PER_PAGE:
            break
    heads = ("log", "records", "bytes", "partition_count", "groups", "oldest_at")
    client.show(found, heads, "There are no logs.")


@_action("show", "show a log and its groups")
def _show(client: LogsApi) -> None:
    """Show the settings and sizes of a log, and its groups."""
    facts = client.call("GET")
    groups = client.call("GET", "groups")["groups"]
    if client.options.json:
        print_lines([{**facts, "groups": groups}])
        return
    print_facts({name: cell(name, value) for name, value in facts.items()})
    if groups:
        print()
        _show_lag(client, groups)


@_action("groups", "list the groups of a log")
def _groups(client: LogsApi) -> None:
    """List the groups of a log with their settings and subscribers."""
    found = client.call("GET", "groups")["groups"]
    if client.options.json:
        print_lines(found)
        return
    heads = ("group", "batch_size", "visibility_timeout", "max_attempts", "lease", "subscribers")
    for group in found:
        named = [f"{one['subscriber']} ({one['partitions']:,})" for one in group["subscribers"]]
        group["subscribers"] = ", ".join(named) or "-"
    client.show(found, heads, f"{client.log} has no groups.")


@_action("lag", "show the lag of groups", _LAG_OPTIONS)
def _lag(client: LogsApi) -> None:
    """Show the lag of each group: records that are not consumed yet, records in flight, and the age
    of the oldest record that is not consumed. With a group, show the lag of its partitions.

    examples:
      queuegate log lag orders
      queuegate log lag orders billing
    """
    if client.options.group is None:
        _show_lag(client, client.call("GET", "groups")["groups"])
        return
    found = client.pages("groups", client.options.group, "partitions")
    heads = ("partition", "key", "watermark", "end", "lag", "in_flight", "held_by")
    shown = [one for one in found if client.options.all or one["lag"]]
    client.show(shown, heads, f"{client.options.group} has consumed all of {client.log}.")


def _show_lag(client: LogsApi, groups: list[dict[str, Any]]) -> None:
    rows = groups
    if not client.options.json:
        rows = [{**group, "subscribers": len(group["subscribers"])} for group in groups]
    heads = ("group", "lag", "in_flight", "watermark_age_seconds", "subscribers")
    client.show(rows, heads, f"{client.log} has no groups.")


@_action(
    "records",
    "list records",
    f"{_PARTITION}\n--from OFFSET  first offset (default: 0)\n{_LIMIT}",
)
def _list_records(client: LogsApi) -> None:
    """List records of a log without consuming them. Without --partition, list the records of all
    partitions, one partition after the other.

    examples:
      queuegate log records orders --limit 20
      queuegate log records orders --partition 3 --from 1000 --json
    """
    options = client.options
    most = options.limit or _MOST_SHOWN
    records = _all_records(client, getattr(options, "from") or 0)
    found = [*itertools.islice(records, most + 1)]
    _show_records(client, found[:most])
    if len(found) > most and not options.json:
        print(f"There are more: raise --limit or --from ({most} shown).")


def _all_records(client: LogsApi, start: int) -> Iterator[dict[str, Any]]:
    if client.options.partition is not None:
        numbers: Iterable[int] = [client.options.partition]
    else:
        numbers = (one["partition"] for one in client.pages("partitions"))
    for number in numbers:
        yield from _records_from(client, number, start)


def _records_from(client: LogsApi, partition: int, start: int) -> Iterator[dict[str, Any]]:
    while True:
        page = client.call(
            "GET", "records", **{"partition": partition, "from": start, "max": _PER_PAGE}
        )["records"]
        yield from page
        if not page:
            return
        start = page[-1]["offset"] + 1


def _show_records(client: LogsApi, records: list[dict[str, Any]]) -> None:
    if not client.options.json:
        records = [{**one, "payload": text_of(one)} for one in records]
    client.show(records, (*_RECORD_COLUMNS, "payload"), "No records.")


@_action("record", "show one record", _RECORD)
def _show_record(client: LogsApi) -> None:
    """Show all attributes of one record, and its payload."""
    options = client.options
    found = client.call("GET", "records", options.partition, options.offset)
    if options.json:
        print_lines([found])
        return
    text = text_of(found)
    facts = {name: value for name, value in found.items() if name not in ("payload", "encoding")}
    print_facts({name: cell(name, one) for name, one in facts.items() if one not in (None, {})})
    if sys.stdout.isatty():
        text = "\n".join(map(plain, text.split("\n")))
    print(f"\n{text}")


@_action(
    "tail",
    "print records as they are published",
    f"--from-start  also print existing records\n{_PARTITION}",
)
def _tail(client: LogsApi) -> None:
    """Print records as they are published, until Ctrl-C, without consuming them.

    examples:
      queuegate log tail orders
      queuegate log tail orders --from-start --json
    """
    wanted = client.options.partition
    nexts: dict[int, int] = {}
    is_first = True
    while True:
        for one in client.pages("partitions"):
            number, end = one["partition"], one["end"]
            if wanted not in (None, number):
                continue
            begin = one["start"] if client.options.from_start or not is_first else end
            start = nexts.setdefault(number, begin)
            if start < end:
                nexts[number] = _print_from(client, number, start)
        is_first = False
        time.sleep(_TAIL_SECONDS)


def _print_from(client: LogsApi, partition: int, start: int) -> int:
    """Print the records from this offset; return the next offset."""
    for record in _records_from(client, partition, start):
        _print_record(client, record)
        start = record["offset"] + 1
    return start


def _print_record(client: LogsApi, record: dict[str, Any]) -> None:
    """Print a record without buffering."""
    if client.options.json:
        print(json.dumps(record, ensure_ascii=False), flush=True)
        return
    key = f" {plain(record['key'])}" if record["key"] else ""
    place = f"{record['partition']}:{record['offset']}"
    print(f"{place}{key}  {plain(text_of(record))}", flush=True)


@_action("create", "create a log", _CREATE_OPTIONS)
def _create(client: LogsApi) -> None:
    """Create a log with settings. A publish creates its log with the default settings: a partition
    for each key, and records stay for one hour after all groups have consumed them.

    examples:
      queuegate log create orders
      queuegate log create clicks --partitions 16 --retain-consumed none --max-age 7d
    """
    given = {
        name: None if value == "none" else value
        for name in ("partitions", "retain_consumed", "max_age", "max_bytes")
        if (value := getattr(client.options, name)) is not None
    }
    made = client.call_all("POST", body={"log": client.log, **given})
    client.done(f"{client.log} exists.", **made)


@_action("publish", "append records", _PUBLISH_OPTIONS)
def _publish(client: LogsApi) -> None:
    """Append a record to a log. An absent log is created. With -, append each line of standard
    input as a record, in order, up to 1,000 records a request. Repeated requests append nothing
    twice.

    examples:
      queuegate log publish orders '{"order": 42}' --partition-key repo-1 --metadata tenant=acme
      queuegate log publish clicks - --partition-key web < clicks.jsonl
    """
    if client.options.payload != "-":
        payload = client.options.payload.encode("utf-8", "surrogateescape")
        [[published]] = _append(client, [payload])
        text = f"Partition {published['partition']}, offset {published['offset']}"
        again = ", where it was already" if published.get("duplicate") else ""
        client.done(f"{text}{again}.", **published)
        return
    if client.options.id:
        raise CommandRefused("--id names one record, not the lines of standard input")
    count = 0
    for part in _append(client, (line.rstrip(b"\n") for line in sys.stdin.buffer)):
        count += len(part)
        client.progress.show(count, "published")
    client.progress.end()
    client.done(f"{counted(count, 'record')} published.", published=count)


def _append(client: LogsApi, payloads: Iterable[bytes]) -> Iterator[list[dict[str, Any]]]:
    """Publish the payloads, request by request. Repeated requests append nothing twice."""
    from queuegate.log.client import publications, record_ids
    from queuegate.log.log_requests import NewRecord

    options = client.options
    same = options.partition_key or "", options.id, dict(options.metadata)
    records = (NewRecord(payload, *same) for payload in payloads)
    for body, _ in publications(records, record_ids()):
        found: list[dict[str, Any]] = client.call("POST", "records", body=body)["records"]
        if not options.id:
            for one in found:
                one.pop("duplicate", None)
        yield found


@_action("consume", "consume records of a group", f"{_GROUP}\n--limit N  exit after N records")
def _consume(client: LogsApi) -> None:
    """Consume records as one more subscriber of a group, until Ctrl-C or --limit. Each record is
    printed and acknowledged. An absent group is created.

    examples:
      queuegate log consume orders billing
      queuegate log consume orders billing --limit 1 --json
    """
    group, limit = client.options.group, client.options.limit
    own = ("groups", group, "subscribers", f"queuegate-log-{secrets.token_hex(6)}")
    body: dict[str, Any] = {}
    left = math.inf if limit is None else limit
    # SIGTERM leaves the group, too: otherwise its partitions stay assigned until the lease ends.
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        while left > 0:
            body["session"] = client.call("PUT", *own, body=body)["session"]
            most = min(left, _CONSUMED_AT_ONCE)
            wanted = {**body, "max": most, "wait": _CONSUME_SECONDS}
            for record in client.call("POST", *own, "fetch", body=wanted)["records"]:
                _print_record(client, record)
                told = {"deliveries": [{"receipt": record["receipt"], "do": "ack"}]}
                client.call("POST", "groups", group, "deliveries", body=told)
                left -= 1
    finally:
        signal.signal(signal.SIGTERM, before)
        if body:
            client.call("DELETE", *own, session=body["session"], release="true")


@_action("delete", "delete a log", YES)
def _delete(client: LogsApi) -> None:
    """Delete a log with its records and groups permanently. Its dead letters stay."""
    facts = client.call("GET")
    count = counted(facts["records"], "record")
    groups = counted(facts["groups"], "group")
    client.agree(f"Delete {client.log} with {count} and {groups} permanently?")
    client.call("DELETE")
    client.done(f"{client.log} is deleted.", deleted=client.log)


@_action("delete-record", "delete one record", f"{YES}\n{_RECORD}")
def _delete_record(client: LogsApi) -> None:
    """Delete one record for all groups."""
    options = client.options
    place = f"{options.partition}:{options.offset}"
    client.agree(f"Delete record {place} of {client.log} for all groups?")
    client.call("DELETE", "records", options.partition, options.offset)
    client.done(f"Record {place} is deleted.", deleted=place)


@_action("delete-group", "delete a group", f"{YES}\n{_GROUP}")
def _delete_group(client: LogsApi) -> None:
    """Delete a group and its position in the log. The log does not change."""
    group = client.options.group
    lag = client.call("GET", "groups", group)["lag"]
    client.agree(f"Delete group {group} of {client.log}, with a lag of {counted(lag, 'record')}?")
    client.call("DELETE", "groups", group)
    client.done(f"Group {group} is deleted.", deleted=group)


@_action("purge", "delete all records", YES)
def _purge(client: LogsApi) -> None:
    """Delete all records of a log. Groups stay, and offsets continue."""
    count = client.call("GET")["records"]
    client.agree(f"Delete all {counted(count, 'record')} of {client.log} permanently?")
    count = client.call("POST", "purge", body={})["records"]
    client.done(f"{counted(count, 'record')} deleted.", records=count)


@_action("seek", "move a group to another position", f"{YES}\n{_GROUP}", _SEEK_OPTIONS)
def _seek(client: LogsApi) -> None:
    """Move a group to the first record (earliest), to the next one (latest) or to a time. Records
    in flight become invalid. --offset moves single partitions.

    examples:
      queuegate log seek orders billing --to earliest
      queuegate log seek orders billing --to 2030-01-31T09:00:00Z
      queuegate log seek orders billing --offset 3=1000 --offset 4=17
    """
    options = client.options
    body: dict[str, Any] = {"to": options.to}
    where = f"at {options.to}"
    if options.offset:
        body = {
            "offsets": [
                {"partition": number, "offset": offset} for number, offset in options.offset
            ]
        }
        where = ", ".join(f"at offset {offset} of {number}" for number, offset in options.offset)
    client.agree(f"Move {options.group} of {client.log} {where}? Records in flight become invalid.")
    client.call("POST", "groups", options.group, "seek", body=body)
    client.done(f"{options.group} continues {where}.", group=options.group, **body)


@_action(
    "dead-letters list",
    "list dead letters",
    f"--group G  list only dead letters of this group\n{_LIMIT}",
)
def _dead_list(client: LogsApi) -> None:
    """List dead letters, the oldest first."""
    options = client.options
    query = {"group": options.group, "max": options.limit or _MOST_SHOWN}
    found = client.call("GET", "dead-letters", **query)["records"]
    if not options.json:
        found = [{**one, **one["failure"], "payload": text_of(one)} for one in found]
    heads = (
        "partition",
        "offset",
        "key",
        "original_group",
        "failed_at",
        "failure_count",
        "last_error",
        "payload",
    )
    client.show(found, heads, f"{client.log} has no dead letters.")


@_action("dead-letters requeue", "publish dead letters again", "", _REQUEUE_OPTIONS)
def _requeue(client: LogsApi) -> None:
    """Publish dead letters to their source log again, for the group that dead-lettered them.

    examples:
      queuegate log dead-letters requeue orders --all
      queuegate log dead-letters requeue orders 0:17 0:18
    """
    body: dict[str, Any] = {"all": True}
    if not client.options.all:
        places = client.options.which
        body = {"offsets": [{"partition": number, "offset": offset} for number, offset in places]}
    count = stay = 0
    has_more = True
    while has_more:
        answer = client.call("POST", "dead-letters", "requeue", body=body)
        count += answer["requeued"]
        stay = answer["orphans"]
        has_more = answer["has_more"] and answer["requeued"]
        client.progress.show(count, "requeued")
    client.progress.end()
    text = f"{counted(count, 'dead letter')} requeued."
    if stay:
        text += f" {stay:,} stay: their log or group is deleted, or they are not dead letters."
    client.done(text, requeued=count, orphans=stay)


@_action("dead-letters purge", "delete all dead letters", YES)
def _dead_purge(client: LogsApi) -> None:
    """Delete all dead letters of a log permanently."""
    client.agree(f"Delete all dead letters of {client.log} permanently?")
    count = client.call("POST", "dead-letters", "purge", body={})["records"]
    client.done(f"{counted(count, 'dead letter')} deleted.", records=count)
