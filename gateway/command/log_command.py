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
from urllib.parse import quote, urlencode

from queuegate.gateway.command.command_line import (
    AddAction,
    CommandRefused,
    ProgressLine,
    actions_of,
    add_gateway,
    add_json,
    add_limit,
    add_options,
    age,
    assignment,
    counted,
    plain,
    print_facts,
    print_lines,
    print_table,
    whole_number,
)
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
_LIST = "List logs by name, with their sizes."
_CREATE = """\
Create a log with settings. A publish creates its log with the default settings: a partition for
each key, and records stay for one hour after all groups have consumed them.

examples:
  queuegate log create orders
  queuegate log create clicks --partitions 16 --retain-consumed none --max-age 7d
"""
_SHOW = "Show the settings and sizes of a log, and its groups."
_GROUPS = "List the groups of a log with their settings and subscribers."
_LAG = """\
Show the lag of each group: records that are not consumed yet, records in flight, and the age of the
oldest record that is not consumed. With a group, show the lag of its partitions.

examples:
  queuegate log lag orders
  queuegate log lag orders billing
"""
_RECORDS = """\
List records of a log without consuming them. Without --partition, list the records of all
partitions, one partition after the other.

examples:
  queuegate log records orders --limit 20
  queuegate log records orders --partition 3 --from 1000 --json
"""
_RECORD = "Show all attributes of one record, and its payload."
_PUBLISH = """\
Append a record to a log. An absent log is created. With -, append each line of standard input as a
record, in order, up to 1,000 records a request. Repeated requests append nothing twice.

examples:
  queuegate log publish orders '{"order": 42}' --partition-key repo-1 --metadata tenant=acme
  queuegate log publish clicks - --partition-key web < clicks.jsonl
"""
_TAIL = """\
Print records as they are published, until Ctrl-C, without consuming them.

examples:
  queuegate log tail orders
  queuegate log tail orders --from-start --json
"""
_CONSUME = """\
Consume records as one more subscriber of a group, until Ctrl-C or --limit. Each record is printed
and acknowledged. An absent group is created.

examples:
  queuegate log consume orders billing
  queuegate log consume orders billing --limit 1 --json
"""
_DELETE = "Delete a log with its records and groups permanently. Its dead letters stay."
_DELETE_RECORD = "Delete one record for all groups."
_DELETE_GROUP = "Delete a group and its position in the log. The log does not change."
_PURGE = "Delete all records of a log. Groups stay, and offsets continue."
_SEEK = """\
Move a group to the first record (earliest), to the next one (latest) or to a time. Records in
flight become invalid. --offset moves single partitions.

examples:
  queuegate log seek orders billing --to earliest
  queuegate log seek orders billing --to 2030-01-31T09:00:00Z
  queuegate log seek orders billing --offset 3=1000 --offset 4=17
"""
_DEAD = """\
List, requeue and purge dead letters: records that a group dead-lettered. Dead letters are stored in
a separate log.

examples:
  queuegate log dead-letters list orders
  queuegate log dead-letters requeue orders 0:17 0:18
  queuegate log dead-letters purge orders --yes
"""
_DEAD_LIST = "List dead letters, the oldest first."
_REQUEUE = """\
Publish dead letters to their source log again, for the group that dead-lettered them.

examples:
  queuegate log dead-letters requeue orders --all
  queuegate log dead-letters requeue orders 0:17 0:18
"""
_DEAD_PURGE = "Delete all dead letters of a log permanently."
_LAG_OPTIONS = """\
[group] GROUP  show the lag of this group by partition
--all          also show partitions without a lag
"""
_PARTITION = "--partition N  only this partition"
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

Action = Callable[["LogsApi"], None]

_PER_PAGE = 1_000
_TAIL_SECONDS = 0.5
_CONSUME_SECONDS = 5
_CONSUMED_AT_ONCE = 10
_RECORD_COLUMNS = ("partition", "offset", "key", "id", "published_at")
_POSITION_COLUMNS = ("partition", "offset", "watermark", "end")


def add_arguments(command: argparse.ArgumentParser) -> None:
    """Add the actions of `queuegate log`."""

    def add_log_action(name: str, summary: str, text: str) -> argparse.ArgumentParser:
        action = add(name, summary, text)
        _finish(action, name)
        return action

    command.description = _DESCRIPTION
    add = actions_of(command)
    _add_inspection(add_log_action)
    _add_changes(add_log_action)
    dead = add("dead-letters", "list, requeue and purge dead letters", _DEAD)
    add_dead = actions_of(dead)
    for name, summary, text in (
        ("list", "list dead letters", _DEAD_LIST),
        ("requeue", "publish dead letters again", _REQUEUE),
        ("purge", "delete all dead letters", _DEAD_PURGE),
    ):
        action = add_dead(name, summary, text)
        _finish(action, f"dead-letters {name}")
        if name == "list":
            add_options(action, "--group G  list only dead letters of this group")
            add_limit(action)
        elif name == "requeue":
            which = action.add_mutually_exclusive_group(required=True)
            add_options(which, _REQUEUE_OPTIONS, which=_place)


def _finish(action: argparse.ArgumentParser, name: str) -> None:
    """Add the arguments that all actions share."""
    action.set_defaults(does=name)
    add_gateway(action)
    add_json(action)
    if name != "list":
        add_options(action, "log LOG  name of the log")
    if name in {"delete", "delete-record", "delete-group", "purge", "dead-letters purge", "seek"}:
        add_options(action, "--yes  do not ask for confirmation")


def _add_inspection(add: AddAction) -> None:
    add_options(add("list", "list logs", _LIST), "--prefix P  list only logs with this prefix")
    add("show", "show a log and its groups", _SHOW)
    add("groups", "list the groups of a log", _GROUPS)
    add_options(add("lag", "show the lag of groups", _LAG), _LAG_OPTIONS)
    records = add("records", "list records", _RECORDS)
    add_options(records, _PARTITION, partition=_offset)
    add_options(records, "--from OFFSET  first offset (default: 0)", **{"from": _offset})
    records.set_defaults(**{"from": 0})
    add_limit(records)
    _add_one(add("record", "show one record", _RECORD))
    tail = add("tail", "print records as they are published", _TAIL)
    add_options(tail, f"--from-start  also print existing records\n{_PARTITION}", partition=_offset)


def _add_changes(add: AddAction) -> None:
    add_options(
        add("create", "create a log", _CREATE),
        _CREATE_OPTIONS,
        partitions=whole_number,
        retain_consumed=_age_or_none,
        max_age=_age_or_none,
        max_bytes=whole_number,
    )
    publish = add("publish", "append records", _PUBLISH)
    add_options(publish, _PUBLISH_OPTIONS, metadata=assignment)
    publish.set_defaults(partition_key="")
    consume = add("consume", "consume records of a group", _CONSUME)
    consume.add_argument("group", metavar="GROUP")
    add_options(consume, "--limit N  exit after N records", limit=whole_number)
    add("delete", "delete a log", _DELETE)
    _add_one(add("delete-record", "delete one record", _DELETE_RECORD))
    add("delete-group", "delete a group", _DELETE_GROUP).add_argument("group", metavar="GROUP")
    add("purge", "delete all records", _PURGE)
    seek = add("seek", "move a group to another position", _SEEK)
    seek.add_argument("group", metavar="GROUP")
    where = seek.add_mutually_exclusive_group(required=True)
    add_options(where, _SEEK_OPTIONS, offset=_seek_place)


def _add_one(action: argparse.ArgumentParser) -> None:
    action.add_argument("partition", type=_offset, metavar="PARTITION")
    action.add_argument("offset", type=_offset, metavar="OFFSET")


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


def run(settings: Settings, options: argparse.Namespace) -> int:
    """Run the action; return 0, or 1 if it was refused."""
    client = LogsApi(GatewayClient(settings, options, "log"), options)
    try:
        _ACTIONS[options.does](client)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # The reader of the output, such as `head`, has closed the pipe.
        sys.stdout = None
        return 0
    except NotConfirmed:
        print("Nothing was changed.")
        return 1
    finally:
        client.progress.end()
    return 0


def _list(client: LogsApi) -> None:
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


def _create(client: LogsApi) -> None:
    given = {
        name: None if value == "none" else value
        for name in ("partitions", "retain_consumed", "max_age", "max_bytes")
        if (value := getattr(client.options, name)) is not None
    }
    made = client.call_all("POST", body={"log": client.log, **given})
    client.done(f"{client.log} exists.", **made)


def _show(client: LogsApi) -> None:
    facts = client.call("GET")
    groups = client.call("GET", "groups")["groups"]
    if client.options.json:
        print_lines([{**facts, "groups": groups}])
        return
    print_facts({name: cell(name, value) for name, value in facts.items()})
    if groups:
        print()
        _show_lag(client, groups)


def _groups(client: LogsApi) -> None:
    found = client.call("GET", "groups")["groups"]
    if client.options.json:
        print_lines(found)
        return
    heads = ("group", "batch_size", "visibility_timeout", "max_attempts", "lease", "subscribers")
    for group in found:
        named = [f"{one['subscriber']} ({one['partitions']:,})" for one in group["subscribers"]]
        group["subscribers"] = ", ".join(named) or "-"
    client.show(found, heads, f"{client.log} has no groups.")


def _lag(client: LogsApi) -> None:
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


def _delete(client: LogsApi) -> None:
    facts = client.call("GET")
    count = counted(facts["records"], "record")
    groups = counted(facts["groups"], "group")
    client.agree(f"Delete {client.log} with {count} and {groups} permanently?")
    client.call("DELETE")
    client.done(f"{client.log} is deleted.", deleted=client.log)


def _delete_record(client: LogsApi) -> None:
    options = client.options
    place = f"{options.partition}:{options.offset}"
    client.agree(f"Delete record {place} of {client.log} for all groups?")
    client.call("DELETE", "records", options.partition, options.offset)
    client.done(f"Record {place} is deleted.", deleted=place)


def _delete_group(client: LogsApi) -> None:
    group = client.options.group
    lag = client.call("GET", "groups", group)["lag"]
    client.agree(f"Delete group {group} of {client.log}, with a lag of {counted(lag, 'record')}?")
    client.call("DELETE", "groups", group)
    client.done(f"Group {group} is deleted.", deleted=group)


def _purge(client: LogsApi) -> None:
    count = client.call("GET")["records"]
    client.agree(f"Delete all {counted(count, 'record')} of {client.log} permanently?")
    count = client.call("POST", "purge", body={})["records"]
    client.done(f"{counted(count, 'record')} deleted.", records=count)


def _seek(client: LogsApi) -> None:
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


def _dead_list(client: LogsApi) -> None:
    options = client.options
    query = {"group": options.group, "max": options.limit}
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


def _requeue(client: LogsApi) -> None:
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


def _dead_purge(client: LogsApi) -> None:
    client.agree(f"Delete all dead letters of {client.log} permanently?")
    count = client.call("POST", "dead-letters", "purge", body={})["records"]
    client.done(f"{counted(count, 'dead letter')} deleted.", records=count)


class NotConfirmed(Exception):
    """The user did not confirm a deletion."""


class LogsApi:
    """A client of the logs API, with the options and the output of one action."""

    def __init__(self, gateway: GatewayClient, options: argparse.Namespace) -> None:
        self._gateway = gateway
        self.options = options
        self.progress = ProgressLine()

    @property
    def log(self) -> str:
        """Return the name of the log, as it was given."""
        return str(self.options.log)

    def call(
        self, method: str, *parts: object, body: object = None, **query: object
    ) -> dict[str, Any]:
        """Request a path below the log; return the JSON object of the response."""
        return self.call_all(method, self.log, *parts, body=body, **query)

    def call_all(
        self, method: str, *parts: object, body: object = None, **query: object
    ) -> dict[str, Any]:
        """Request a path below /v1/logs; return the JSON object of the response."""
        path = "".join(f"/{quote(str(part), safe='')}" for part in parts)
        given = {name: value for name, value in query.items() if value is not None}
        question = f"?{urlencode(given)}" if given else ""
        answer: dict[str, Any] = self._gateway.call(method, f"/v1/logs{path}{question}", body) or {}
        return answer

    def agree(self, question: str) -> None:
        """Ask for confirmation of a deletion. Raises NotConfirmed."""
        if self.options.yes:
            return
        try:
            answer = input(f"{question} (yes/no) ")
        except EOFError:
            print()
            answer = ""
        if answer.strip().lower() not in {"y", "yes"}:
            raise NotConfirmed

    def pages(self, *parts: object) -> Iterator[dict[str, Any]]:
        """Yield the partitions of a paged list."""
        after: int | None = None
        while True:
            page = self.call("GET", *parts, after=after, max=_PER_PAGE)["partitions"]
            yield from page
            if len(page) < _PER_PAGE:
                return
            after = page[-1]["partition"]

    def show(self, objects: Iterable[dict[str, Any]], columns: Iterable[str], none: str) -> None:
        """Print a table with these columns, or all members as JSON."""
        found = list(objects)
        if self.options.json:
            print_lines(found)
        elif not found:
            print(none)
        else:
            heads = list(columns)
            titles = [head.replace("_", " ").upper() for head in heads]
            print_table(titles, [[cell(head, one.get(head)) for head in heads] for one in found])

    def done(self, text: str, **facts: object) -> None:
        """Print the result."""
        if self.options.json:
            print_lines([facts])
        else:
            print(text)


def cell(head: str, value: object) -> str:
    """Format a value for a table."""
    if value is None:
        return "-"
    if isinstance(value, dict):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, float):
        return f"{value:,.1f}"
    # Positions are input of other commands, so they have no thousands separators.
    is_amount = isinstance(value, int) and head not in _POSITION_COLUMNS
    return f"{value:,}" if is_amount else str(value)


def text_of(record: dict[str, Any]) -> str:
    """Decode the payload for a terminal."""
    payload = str(record["payload"])
    if record.get("encoding") != "base64":
        return payload
    return base64.b64decode(payload).decode("utf-8", "backslashreplace")


def _list_records(client: LogsApi) -> None:
    """Print records of one partition or of all."""
    options = client.options
    found = [*itertools.islice(_all_records(client, getattr(options, "from")), options.limit + 1)]
    _show_records(client, found[: options.limit])
    if len(found) > options.limit and not options.json:
        print(f"There are more: raise --limit or --from ({options.limit} shown).")


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


def _show_record(client: LogsApi) -> None:
    """Print one record."""
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


def _tail(client: LogsApi) -> None:
    """Print new records until Ctrl-C."""
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


def _consume(client: LogsApi) -> None:
    """Consume records as a new subscriber of the group."""
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


def _publish(client: LogsApi) -> None:
    """Publish one record, or the lines of standard input."""
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
    same = options.partition_key, options.id, dict(options.metadata)
    records = (NewRecord(payload, *same) for payload in payloads)
    for body, _ in publications(records, record_ids()):
        found: list[dict[str, Any]] = client.call("POST", "records", body=body)["records"]
        if not options.id:
            for one in found:
                one.pop("duplicate", None)
        yield found


_ACTIONS: dict[str, Action] = {
    "list": _list,
    "create": _create,
    "show": _show,
    "groups": _groups,
    "lag": _lag,
    "records": _list_records,
    "record": _show_record,
    "tail": _tail,
    "publish": _publish,
    "consume": _consume,
    "delete": _delete,
    "delete-record": _delete_record,
    "delete-group": _delete_group,
    "purge": _purge,
    "seek": _seek,
    "dead-letters list": _dead_list,
    "dead-letters requeue": _requeue,
    "dead-letters purge": _dead_purge,
}
