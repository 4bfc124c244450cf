"""`queuegate log`: logs, groups, records and dead letters, as a running gateway has them."""

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

from queuegate.gateway.command.asking import Gateway, NoAnswer, Refused
from queuegate.gateway.command.log_asking import Asked, NotAgreed, cell, counted, text_of
from queuegate.gateway.command.stored import plain, print_lines
from queuegate.gateway.configuration.settings import Settings

_AT_ONCE = 1_000
_BYTES_AT_ONCE = 6_000_000
_BYTES_AROUND = 100
"""Names and id of a record, at most."""
_PER_PAGE = 1_000
_LOGS_PER_PAGE = 100
_TAIL_SECONDS = 0.5
_CONSUME_SECONDS = 5
_CONSUMED_AT_ONCE = 10
_ABOUT = ("partition", "offset", "key", "id", "published_at")

Action = Callable[[Asked], None]


def run(settings: Settings, options: argparse.Namespace) -> int:
    """Do what was asked; 0, or 1 when it could not be done."""
    asked = Asked(Gateway(settings, options, "log"), options)
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
    except NotAgreed:
        print("Nothing was changed.")
        return 1
    return 0


def _list(asked: Asked) -> None:
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


def _create(asked: Asked) -> None:
    given = {
        name: None if value == "none" else value
        for name in ("partitions", "retain_consumed", "max_age", "max_bytes")
        if (value := getattr(asked.options, name)) is not None
    }
    made = asked.call_all("POST", body={"log": asked.log, **given})
    asked.done(f"{asked.log} is there.", **made)


def _show(asked: Asked) -> None:
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
        print(f"{name:{width}}  {plain(cell(name, value))}")


def _groups(asked: Asked) -> None:
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


def _lag(asked: Asked) -> None:
    if asked.options.group is None:
        _show_lag(asked, asked.call("GET", "groups")["groups"])
        return
    found = asked.pages("groups", asked.options.group, "partitions")
    heads = ("partition", "key", "watermark", "end", "lag", "in_flight", "held_by")
    shown = [one for one in found if asked.options.all or one["lag"]]
    asked.show(shown, heads, f"{asked.options.group} is done with all of {asked.log}.")


def _show_lag(asked: Asked, groups: list[dict[str, Any]]) -> None:
    rows = groups
    if not asked.options.json:
        rows = [{**group, "subscribers": len(group["subscribers"])} for group in groups]
    heads = ("group", "lag", "in_flight", "watermark_age_seconds", "subscribers")
    asked.show(rows, heads, f"{asked.log} has no groups.")


def _records(asked: Asked) -> None:
    options = asked.options
    found = [*itertools.islice(_all_records(asked, options.start), options.limit + 1)]
    _show_records(asked, found[: options.limit])
    if len(found) > options.limit and not options.json:
        print(f"There are more: --limit and --from show them ({options.limit} shown).")


def _all_records(asked: Asked, start: int) -> Iterator[dict[str, Any]]:
    if asked.options.partition is not None:
        numbers: Iterable[int] = [asked.options.partition]
    else:
        numbers = (one["partition"] for one in asked.pages("partitions"))
    for number in numbers:
        yield from _records_from(asked, number, start)


def _records_from(asked: Asked, partition: int, start: int) -> Iterator[dict[str, Any]]:
    while True:
        page = asked.call(
            "GET", "records", **{"partition": partition, "from": start, "max": _PER_PAGE}
        )["records"]
        yield from page
        if not page:
            return
        start = page[-1]["offset"] + 1


def _show_records(asked: Asked, records: list[dict[str, Any]]) -> None:
    if not asked.options.json:
        records = [{**one, "payload": text_of(one)} for one in records]
    asked.show(records, (*_ABOUT, "payload"), "No records.")


def _record(asked: Asked) -> None:
    options = asked.options
    found = asked.call("GET", "records", options.partition, options.offset)
    if options.json:
        print_lines([found])
        return
    text = text_of(found)
    facts = {name: value for name, value in found.items() if name not in ("payload", "encoding")}
    _print_facts({name: value for name, value in facts.items() if value not in (None, {})})
    if sys.stdout.isatty():
        text = "\n".join(map(plain, text.split("\n")))
    print(f"\n{text}")


def _tail(asked: Asked) -> None:
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


def _print_from(asked: Asked, partition: int, start: int) -> int:
    """Where to go on."""
    for record in _records_from(asked, partition, start):
        _print_record(asked, record)
        start = record["offset"] + 1
    return start


def _print_record(asked: Asked, record: dict[str, Any]) -> None:
    """At once: somebody waits for it."""
    if asked.options.json:
        print(json.dumps(record, ensure_ascii=False), flush=True)
        return
    key = f" {plain(record['key'])}" if record["key"] else ""
    place = f"{record['partition']}:{record['offset']}"
    print(f"{place}{key}  {plain(text_of(record))}", flush=True)


def _consume(asked: Asked) -> None:
    group, limit = asked.options.group, asked.options.limit
    own = ("groups", group, "subscribers", f"queuegate-log-{secrets.token_hex(6)}")
    body: dict[str, Any] = {}
    left = math.inf if limit is None else limit
    # Whoever is told to end leaves, too: else its partitions wait until its lease is over.
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        while left > 0:
            body["session"] = asked.call("PUT", *own, body=body)["session"]
            most = min(left, _CONSUMED_AT_ONCE)
            wanted = {**body, "max": most, "wait": _CONSUME_SECONDS}
            for record in asked.call("POST", *own, "fetch", body=wanted)["records"]:
                _print_record(asked, record)
                told = {"deliveries": [{"receipt": record["receipt"], "do": "ack"}]}
                asked.call("POST", "groups", group, "deliveries", body=told)
                left -= 1
    finally:
        signal.signal(signal.SIGTERM, before)
        if body:
            asked.call("DELETE", *own, session=body["session"], release="true")


def _publish(asked: Asked) -> None:
    if asked.options.payload != "-":
        payload = asked.options.payload.encode("utf-8", "surrogateescape")
        [published] = _append(asked, [_as_text(payload)], asked.options.id)
        text = f"Partition {published['partition']}, offset {published['offset']}"
        again = ", where it was already" if published.get("duplicate") else ""
        asked.done(f"{text}{again}.", **published)
        return
    if asked.options.id:
        raise Refused("--id names one record, and not each line of standard input")
    count = 0
    same = [asked.options.partition_key, *asked.options.metadata]
    for part in _parts((line.rstrip(b"\n") for line in sys.stdin.buffer), same):
        count += len(_append(asked, part, None))
        asked.progress.tell(count, "published")
    asked.progress.end()
    asked.done(f"{counted(count, 'record')} published.", published=count)


def _append(
    asked: Asked, payloads: Iterable[dict[str, str]], own_id: str | None
) -> list[dict[str, Any]]:
    """Publish them; ids of ours, so that a repeated request appends nothing."""
    options = asked.options
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


def _parts(lines: Iterable[bytes], same: object) -> Iterator[list[dict[str, str]]]:
    """Payloads of requests in which each record has these members, too."""
    part: list[dict[str, str]] = []
    size = 0
    around = _BYTES_AROUND + len(json.dumps(same))
    for line in lines:
        payload = _as_text(line)
        # As long as it is on the wire, where quotes and umlauts are escaped.
        more = len(json.dumps(payload)) + around
        if part and (len(part) == _AT_ONCE or size + more > _BYTES_AT_ONCE):
            yield part
            part, size = [], 0
        part.append(payload)
        size += more
    if part:
        yield part


def _delete(asked: Asked) -> None:
    facts = asked.call("GET")
    count = counted(facts["records"], "record")
    groups = counted(facts["groups"], "group")
    asked.agree(f"Delete {asked.log} with {count} and {groups} for good?")
    asked.call("DELETE")
    asked.done(f"{asked.log} is deleted.", deleted=asked.log)


def _delete_record(asked: Asked) -> None:
    options = asked.options
    place = f"{options.partition}:{options.offset}"
    asked.agree(f"Delete record {place} of {asked.log} for all groups?")
    asked.call("DELETE", "records", options.partition, options.offset)
    asked.done(f"Record {place} is deleted.", deleted=place)


def _delete_group(asked: Asked) -> None:
    group = asked.options.group
    lag = asked.call("GET", "groups", group)["lag"]
    asked.agree(f"Delete group {group} of {asked.log}, with a lag of {counted(lag, 'record')}?")
    asked.call("DELETE", "groups", group)
    asked.done(f"Group {group} is deleted.", deleted=group)


def _purge(asked: Asked) -> None:
    count = asked.call("GET")["records"]
    asked.agree(f"Delete all {counted(count, 'record')} of {asked.log} for good?")
    count = asked.call("POST", "purge", body={})["records"]
    asked.done(f"{counted(count, 'record')} deleted.", records=count)


def _seek(asked: Asked) -> None:
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


def _dead_list(asked: Asked) -> None:
    options = asked.options
    query = {"group": options.group, "max": options.limit}
    found = asked.call("GET", "dead-letters", **query)["records"]
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
    asked.show(found, heads, f"{asked.log} has no dead letters.")


def _requeue(asked: Asked) -> None:
    body: dict[str, Any] = {"all": True}
    if not asked.options.all:
        places = asked.options.which
        body = {"offsets": [{"partition": number, "offset": offset} for number, offset in places]}
    count = stay = 0
    has_more = True
    while has_more:
        answer = asked.call("POST", "dead-letters", "requeue", body=body)
        count += answer["requeued"]
        stay = answer["orphans"]
        has_more = answer["has_more"] and answer["requeued"]
        asked.progress.tell(count, "requeued")
    asked.progress.end()
    text = f"{counted(count, 'dead letter')} requeued."
    if stay:
        text += f" {stay:,} stay: their log or group is gone, or they are no dead letters."
    asked.done(text, requeued=count, orphans=stay)


def _dead_purge(asked: Asked) -> None:
    asked.agree(f"Delete all dead letters of {asked.log} for good?")
    count = asked.call("POST", "dead-letters", "purge", body={})["records"]
    asked.done(f"{counted(count, 'dead letter')} deleted.", records=count)


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
