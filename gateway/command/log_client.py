"""Records of logs: a client of the gateway's API, and the actions that read and publish records."""

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
from collections.abc import Iterable, Iterator
from typing import Any
from urllib.parse import quote, urlencode

from queuegate.gateway.command.gateway_client import GatewayClient
from queuegate.gateway.command.terminal import (
    CommandRefused,
    ProgressLine,
    counted,
    plain,
    print_facts,
    print_lines,
    print_table,
)

_MAX_BATCH_RECORDS = 1_000
_MAX_BATCH_BYTES = 6_000_000
_RECORD_OVERHEAD_BYTES = 100
"""Upper bound of the member names and the id of a record."""
_PER_PAGE = 1_000
_TAIL_SECONDS = 0.5
_CONSUME_SECONDS = 5
_CONSUMED_AT_ONCE = 10
_RECORD_COLUMNS = ("partition", "offset", "key", "id", "published_at")
_POSITION_COLUMNS = ("partition", "offset", "watermark", "end")


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


def list_records(client: LogsApi) -> None:
    """Print records of one partition or of all."""
    options = client.options
    found = [*itertools.islice(_all_records(client, options.start), options.limit + 1)]
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


def show_record(client: LogsApi) -> None:
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


def tail(client: LogsApi) -> None:
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


def consume(client: LogsApi) -> None:
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


def publish(client: LogsApi) -> None:
    """Publish one record, or the lines of standard input."""
    if client.options.payload != "-":
        payload = client.options.payload.encode("utf-8", "surrogateescape")
        [published] = _append(client, [_as_text(payload)], client.options.id)
        text = f"Partition {published['partition']}, offset {published['offset']}"
        again = ", where it was already" if published.get("duplicate") else ""
        client.done(f"{text}{again}.", **published)
        return
    if client.options.id:
        raise CommandRefused("--id names one record, not the lines of standard input")
    count = 0
    same = [client.options.partition_key, *client.options.metadata]
    for part in _parts((line.rstrip(b"\n") for line in sys.stdin.buffer), same):
        count += len(_append(client, part, None))
        client.progress.tell(count, "published")
    client.progress.end()
    client.done(f"{counted(count, 'record')} published.", published=count)


def _append(
    client: LogsApi, payloads: Iterable[dict[str, str]], own_id: str | None
) -> list[dict[str, Any]]:
    """Publish the payloads with generated ids, so that a repeated request appends nothing twice."""
    options = client.options
    metadata = {"metadata": dict(options.metadata)} if options.metadata else {}
    ours = secrets.token_hex(12)
    records = [
        {
            "key": options.partition_key,
            "id": own_id or f"{ours}-{place}",
            **payload,
            **metadata,
        }
        for place, payload in enumerate(payloads)
    ]
    found: list[dict[str, Any]] = client.call("POST", "records", body={"records": records})[
        "records"
    ]
    if own_id is None:
        for one in found:
            one.pop("duplicate", None)
    return found


def _as_text(payload: bytes) -> dict[str, str]:
    """Return the payload and encoding members of a record."""
    try:
        return {"payload": payload.decode()}
    except UnicodeDecodeError:
        return {"payload": base64.b64encode(payload).decode(), "encoding": "base64"}


def _parts(lines: Iterable[bytes], same: object) -> Iterator[list[dict[str, str]]]:
    """Split lines into request-sized batches. ``same``: members that each record has as well."""
    part: list[dict[str, str]] = []
    size = 0
    around = _RECORD_OVERHEAD_BYTES + len(json.dumps(same))
    for line in lines:
        payload = _as_text(line)
        # The size in JSON, which escapes quotes and non-ASCII text.
        more = len(json.dumps(payload)) + around
        if part and (len(part) == _MAX_BATCH_RECORDS or size + more > _MAX_BATCH_BYTES):
            yield part
            part, size = [], 0
        part.append(payload)
        size += more
    if part:
        yield part
