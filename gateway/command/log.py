"""`queuegate log`: logs, groups, records and dead letters, as a running gateway has them."""

from __future__ import annotations

import argparse
import base64
import itertools
import json
import secrets
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any
from urllib.parse import quote, urlencode

from gateway.command.asking import Gateway, NoAnswer, Refused
from gateway.command.stored import plain, print_lines, print_table
from gateway.configuration.settings import Settings

_AT_ONCE = 1_000
_BYTES_AT_ONCE = 6_000_000
_PER_PAGE = 1_000
_LOGS_PER_PAGE = 100
_TAIL_SECONDS = 0.5
_PROGRESS_SECONDS = 1.0
_ABOUT = ("partition", "offset", "key", "id", "published_at")

Action = Callable[["_Asked"], None]


class _NotAgreed(Exception):
    """Somebody was asked, and said no."""


def run(settings: Settings, options: argparse.Namespace) -> int:
    """Do what was asked; 0, or 1 when it could not be done."""
    asked = _Asked(Gateway(settings, options, "log"), options)
    try:
        _ACTIONS[options.does](asked)
    except KeyboardInterrupt:
        asked.progress.end()
        return 130
    except BrokenPipeError:
        # Whoever read it, such as `head`, has enough.
        sys.stdout = None
        return 0
    except (NoAnswer, Refused) as refusal:
        asked.progress.end()
        print(f"queuegate: {plain(str(refusal))}", file=sys.stderr)
        return 1
    except _NotAgreed:
        print("Nothing was changed.")
        return 1
    return 0


class _Progress:
    """A count that grows on a terminal, once a second."""

    def __init__(self) -> None:
        self._told_at = time.monotonic()
        self._told = False

    def tell(self, count: int, what: str) -> None:
        if sys.stderr.isatty() and time.monotonic() - self._told_at >= _PROGRESS_SECONDS:
            self._told_at = time.monotonic()
            self._told = True
            print(f"\r{count:,} {what}", end="", file=sys.stderr, flush=True)

    def end(self) -> None:
        if self._told:
            print(file=sys.stderr)
            self._told = False


class _Asked:
    """What was asked, of which log, and of whom."""

    def __init__(self, gateway: Gateway, options: argparse.Namespace) -> None:
        self._gateway = gateway
        self.options = options
        self.progress = _Progress()

    @property
    def log(self) -> str:
        """The log, as it was given."""
        return str(self.options.log)

    def call(
        self, method: str, *parts: object, body: object = None, **query: object
    ) -> dict[str, Any]:
        """What is answered about the log; ``parts`` of the path come after its name."""
        return self.call_all(method, self.log, *parts, body=body, **query)

    def call_all(
        self, method: str, *parts: object, body: object = None, **query: object
    ) -> dict[str, Any]:
        """What is answered below /v1/logs."""
        path = "".join(f"/{quote(str(part), safe='')}" for part in parts)
        # A path segment of dots alone would be no name, but another path.
        given = {name: value for name, value in query.items() if value is not None}
        question = f"?{urlencode(given)}" if given else ""
        answer: dict[str, Any] = self._gateway.call(method, f"/v1/logs{path}{question}", body) or {}
        return answer

    def agree(self, question: str) -> None:
        """Ask before something is lost. Raises _NotAgreed."""
        if self.options.yes:
            return
        try:
            answer = input(f"{question} (yes/no) ")
        except EOFError:
            print()
            answer = ""
        if answer.strip().lower() not in {"y", "yes"}:
            raise _NotAgreed

    def pages(self, *parts: object) -> Iterator[dict[str, Any]]:
        """What is listed by partition."""
        after: int | None = None
        while True:
            page = self.call("GET", *parts, after=after, max=_PER_PAGE)["partitions"]
            yield from page
            if len(page) < _PER_PAGE:
                return
            after = page[-1]["partition"]

    def show(self, objects: Iterable[dict[str, Any]], columns: Iterable[str], none: str) -> None:
        """A table with these members, or all of them as JSON."""
        found = list(objects)
        if self.options.json:
            print_lines(found)
        elif not found:
            print(none)
        else:
            heads = list(columns)
            titles = [head.replace("_", " ").upper() for head in heads]
            print_table(titles, [[_cell(one.get(head)) for head in heads] for one in found])

    def done(self, text: str, **facts: object) -> None:
        """Say what was done."""
        if self.options.json:
            print_lines([facts])
        else:
            print(text)


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:,.1f}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _list(asked: _Asked) -> None:
    found: list[dict[str, Any]] = []
    while True:
        after = found[-1]["log"] if found else None
        page = asked.call_all("GET", prefix=asked.options.prefix, after=after, max=_LOGS_PER_PAGE)[
            "logs"
        ]
        found += page
        if len(page) < _LOGS_PER_PAGE:
            break
    heads = ("log", "records", "bytes", "partition_count", "groups", "oldest_at")
    asked.show(found, heads, "There are no logs.")


def _create(asked: _Asked) -> None:
    given = {
        name: None if value == "none" else value
        for name in ("partitions", "retain_consumed", "max_age", "max_bytes")
        if (value := getattr(asked.options, name)) is not None
    }
    made = asked.call_all("POST", body={"log": asked.log, **given})
    asked.done(f"{asked.log} is there.", **made)


def _show(asked: _Asked) -> None:
    facts = asked.call("GET")
    groups = asked.call("GET", "groups")["groups"]
    if asked.options.json:
        print_lines([{**facts, "groups": groups}])
        return
    _print_facts(facts)
    if groups:
        print()
        _show_lag(asked, groups)


def _print_facts(facts: dict[str, Any]) -> None:
    width = max(map(len, facts))
    for name, value in facts.items():
        print(f"{name:{width}}  {plain(_cell(value))}")


def _groups(asked: _Asked) -> None:
    found = asked.call("GET", "groups")["groups"]
    if asked.options.json:
        print_lines(found)
        return
    heads = ("group", "batch_size", "visibility_timeout", "max_attempts", "lease", "subscribers")
    rows = [
        {**group, "subscribers": ", ".join(_subscriber(one) for one in group["subscribers"]) or "-"}
        for group in found
    ]
    asked.show(rows, heads, f"{asked.log} has no groups.")


def _subscriber(one: dict[str, Any]) -> str:
    return f"{one['subscriber']} ({one['partitions']:,})"


def _lag(asked: _Asked) -> None:
    if asked.options.group is None:
        _show_lag(asked, asked.call("GET", "groups")["groups"])
        return
    found = asked.pages("groups", asked.options.group, "partitions")
    heads = ("partition", "key", "watermark", "end", "lag", "in_flight", "held_by")
    shown = [one for one in found if asked.options.all or one["lag"]]
    asked.show(shown, heads, f"{asked.options.group} is done with all of {asked.log}.")


def _show_lag(asked: _Asked, groups: list[dict[str, Any]]) -> None:
    rows = groups
    if not asked.options.json:
        rows = [{**group, "subscribers": len(group["subscribers"])} for group in groups]
    heads = ("group", "lag", "in_flight", "watermark_age_seconds", "subscribers")
    asked.show(rows, heads, f"{asked.log} has no groups.")


def _records(asked: _Asked) -> None:
    options = asked.options
    found = [*itertools.islice(_all_records(asked, options.start), options.limit + 1)]
    _show_records(asked, found[: options.limit])
    if len(found) > options.limit and not options.json:
        print(f"There are more: --limit and --from show them ({options.limit} shown).")


def _all_records(asked: _Asked, start: int) -> Iterator[dict[str, Any]]:
    if asked.options.partition is not None:
        numbers: Iterable[int] = [asked.options.partition]
    else:
        numbers = (one["partition"] for one in asked.pages("partitions"))
    for number in numbers:
        yield from _records_from(asked, number, start)


def _records_from(asked: _Asked, partition: int, start: int) -> Iterator[dict[str, Any]]:
    while True:
        page = asked.call(
            "GET", "records", **{"partition": partition, "from": start, "max": _PER_PAGE}
        )["records"]
        yield from page
        if not page:
            return
        start = page[-1]["offset"] + 1


def _show_records(asked: _Asked, records: list[dict[str, Any]]) -> None:
    if not asked.options.json:
        records = [{**one, "payload": _text(one)} for one in records]
    asked.show(records, (*_ABOUT, "payload"), "No records.")


def _text(record: dict[str, Any]) -> str:
    """The payload for a terminal."""
    payload = str(record["payload"])
    if record.get("encoding") != "base64":
        return payload
    return base64.b64decode(payload).decode("utf-8", "backslashreplace")


def _record(asked: _Asked) -> None:
    options = asked.options
    found = asked.call("GET", "records", options.partition, options.offset)
    if options.json:
        print_lines([found])
        return
    text = _text(found)
    facts = {name: value for name, value in found.items() if name not in ("payload", "encoding")}
    _print_facts({name: str(value) for name, value in facts.items() if value not in (None, {})})
    if sys.stdout.isatty():
        text = "\n".join(map(plain, text.split("\n")))
    print(f"\n{text}")


def _tail(asked: _Asked) -> None:
    wanted = asked.options.partition
    nexts: dict[int, int] = {}
    is_first = True
    while True:
        for one in asked.pages("partitions"):
            number, end = one["partition"], one["end"]
            if wanted not in (None, number):
                continue
            begin = one["start"] if asked.options.from_start or not is_first else end
            start = nexts.setdefault(number, begin)
            if start < end:
                nexts[number] = _print_from(asked, number, start)
        is_first = False
        time.sleep(_TAIL_SECONDS)


def _print_from(asked: _Asked, partition: int, start: int) -> int:
    """Where to go on."""
    for record in _records_from(asked, partition, start):
        if asked.options.json:
            print(json.dumps(record, ensure_ascii=False), flush=True)
        else:
            key = f" {plain(record['key'])}" if record["key"] else ""
            print(f"{partition}:{record['offset']}{key}  {plain(_text(record))}", flush=True)
        start = record["offset"] + 1
    return start


def _publish(asked: _Asked) -> None:
    if asked.options.payload != "-":
        payload = asked.options.payload.encode("utf-8", "surrogateescape")
        [published] = _append(asked, [payload], asked.options.id)
        text = f"Partition {published['partition']}, offset {published['offset']}"
        again = ", where it was already" if published.get("duplicate") else ""
        asked.done(f"{text}{again}.", **published)
        return
    if asked.options.id:
        raise Refused("--id names one record, and not each line of standard input")
    count = 0
    for part in _parts(line.rstrip(b"\n") for line in sys.stdin.buffer):
        count += len(_append(asked, part, None))
        asked.progress.tell(count, "published")
    asked.progress.end()
    asked.done(f"{_counted(count, 'record')} published.", published=count)


def _append(asked: _Asked, payloads: list[bytes], own_id: str | None) -> list[dict[str, Any]]:
    """Publish them; ids of ours, so that a repeated request appends nothing."""
    options = asked.options
    metadata = {"metadata": dict(options.metadata)} if options.metadata else {}
    ours = secrets.token_hex(12)
    records = [
        {
            "key": options.partition_key,
            "id": own_id or f"{ours}-{place}",
            **_as_text(payload),
            **metadata,
        }
        for place, payload in enumerate(payloads)
    ]
    found: list[dict[str, Any]] = asked.call("POST", "records", body={"records": records})[
        "records"
    ]
    if own_id is None:
        for one in found:
            one.pop("duplicate", None)
    return found


def _as_text(payload: bytes) -> dict[str, str]:
    """As the wire has it; the other way round than `_text`."""
    try:
        return {"payload": payload.decode()}
    except UnicodeDecodeError:
        return {"payload": base64.b64encode(payload).decode(), "encoding": "base64"}


def _parts(lines: Iterable[bytes]) -> Iterator[list[bytes]]:
    part: list[bytes] = []
    size = 0
    for line in lines:
        if part and (len(part) == _AT_ONCE or size + len(line) > _BYTES_AT_ONCE):
            yield part
            part, size = [], 0
        part.append(line)
        size += len(line) + 100
    if part:
        yield part


def _delete(asked: _Asked) -> None:
    facts = asked.call("GET")
    count = _counted(facts["records"], "record")
    groups = _counted(facts["groups"], "group")
    asked.agree(f"Delete {asked.log} with {count} and {groups} for good?")
    asked.call("DELETE")
    asked.done(f"{asked.log} is deleted.", deleted=asked.log)


def _delete_record(asked: _Asked) -> None:
    options = asked.options
    place = f"{options.partition}:{options.offset}"
    asked.agree(f"Delete record {place} of {asked.log} for all groups?")
    asked.call("DELETE", "records", options.partition, options.offset)
    asked.done(f"Record {place} is deleted.", deleted=place)


def _delete_group(asked: _Asked) -> None:
    group = asked.options.group
    lag = asked.call("GET", "groups", group)["lag"]
    asked.agree(f"Delete group {group} of {asked.log}, with a lag of {_counted(lag, 'record')}?")
    asked.call("DELETE", "groups", group)
    asked.done(f"Group {group} is deleted.", deleted=group)


def _purge(asked: _Asked) -> None:
    count = asked.call("GET")["records"]
    asked.agree(f"Delete all {_counted(count, 'record')} of {asked.log} for good?")
    count = asked.call("POST", "purge", body={})["records"]
    asked.done(f"{_counted(count, 'record')} deleted.", records=count)


def _seek(asked: _Asked) -> None:
    options = asked.options
    body: dict[str, Any] = {"to": options.to}
    where = f"at {options.to}"
    if options.offset:
        body = {
            "offsets": [
                {"partition": number, "offset": offset} for number, offset in options.offset
            ]
        }
        where = ", ".join(f"at offset {offset} of {number}" for number, offset in options.offset)
    asked.agree(f"Let {options.group} of {asked.log} go on {where}? What it has out is void.")
    asked.call("POST", "groups", options.group, "seek", body=body)
    asked.done(f"{options.group} goes on {where}.", group=options.group, **body)


def _dead_list(asked: _Asked) -> None:
    options = asked.options
    query = {"group": options.group, "max": options.limit}
    found = asked.call("GET", "dead-letters", **query)["records"]
    if not options.json:
        found = [{**one, **one["failure"], "payload": _text(one)} for one in found]
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
    asked.show(found, heads, f"{asked.log} has no dead letters.")


def _requeue(asked: _Asked) -> None:
    body: dict[str, Any] = {"all": True}
    if not asked.options.all:
        places = asked.options.which
        body = {"offsets": [{"partition": number, "offset": offset} for number, offset in places]}
    answer = asked.call("POST", "dead-letters", "requeue", body=body)
    count = answer["requeued"]
    asked.done(f"{_counted(count, 'dead letter')} requeued.", **answer)


def _dead_purge(asked: _Asked) -> None:
    asked.agree(f"Delete all dead letters of {asked.log} for good?")
    count = asked.call("POST", "dead-letters", "purge", body={})["records"]
    asked.done(f"{_counted(count, 'dead letter')} deleted.", records=count)


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


_ACTIONS: dict[str, Action] = {
    "list": _list,
    "create": _create,
    "show": _show,
    "groups": _groups,
    "lag": _lag,
    "records": _records,
    "record": _record,
    "tail": _tail,
    "publish": _publish,
    "delete": _delete,
    "delete-record": _delete_record,
    "delete-group": _delete_group,
    "purge": _purge,
    "seek": _seek,
    "dead-letters list": _dead_list,
    "dead-letters requeue": _requeue,
    "dead-letters purge": _dead_purge,
}
