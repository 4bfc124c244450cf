"""`elasticmq.conf` as tables of a seed. Keys follow ElasticMQ's reference.conf; others become
warnings."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from queuegate.gateway.seeding.located_files import FileKey, LocatedFile, Table

_SERVER = re.compile(
    "node-address|rest-stats|generate-node-address|akka|pekko|(queues-|messages-)?storage"
)
"""Keys about the server itself, which Queuegate takes from its own settings."""
_DURATION = re.compile(r"([0-9]{1,18}(?:\.[0-9]+)?)\s*([a-zµ]*)")
_UNITS = {
    "nanoseconds ns nano nanos nanosecond": 1e-9,
    "microseconds us µs micro micros microsecond": 1e-6,
    " milliseconds ms milli millis millisecond": 1e-3,
    "seconds s second": 1,
    "minutes m minute": 60,
    "hours h hour": 3_600,
    "days d day": 86_400,
}
_SECONDS = {unit: seconds for units, seconds in _UNITS.items() for unit in units.split(" ")}
_ALLOWED = "allowed are durations such as 10 seconds or 500 ms; a bare number is milliseconds"
_FIELDS = {
    "defaultVisibilityTimeout": "visibility_timeout",
    "delay": "delay_seconds",
    "receiveMessageWait": "receive_message_wait_time_seconds",
    "contentBasedDeduplication": "content_based_deduplication",
    "tags": "tags",
}
_UNKNOWN = "is unknown and ignored"


def translate_elasticmq(file: LocatedFile) -> Table:
    """Return the tables of a seed file. `aws` names account and region."""
    seed: Table = {}
    for key, given in file.data.items():
        if key in ("queues", "aws"):
            table = file.checked(key, given, dict, "an object") or {}
            seed |= {key: _queues(file, table)} if key == "queues" else _account(table)
        else:
            _warn(file, key, given)
    return seed


def _account(given: Table) -> Table:
    names = {"region": "region", "accountId": "account"}
    found = {key.renamed(names[key]): str(given[key]) for key in given if key in names}
    return {key: text.zfill(12) if key == "account" else text for key, text in found.items()}


def _warn(file: LocatedFile, key: FileKey, given: Any) -> None:
    """Name a setting that has no effect."""
    table = given if isinstance(given, dict) else {}
    if key == "auto-create-queues":
        if table.get("enabled") is True:
            file.warn(key, "is ignored: name queues here, or create them by CreateQueue")
    elif key == "rest-sqs":
        for name, value in table.items():
            if name == "sqs-limits" and value != "strict":
                file.warn(name, "is ignored: the limits are always those of SQS")
    elif _SERVER.fullmatch(key) is None:
        file.warn(key, _UNKNOWN)


def _queues(file: LocatedFile, given: Table) -> Table:
    names = {key: key.renamed(_name(key, table)) for key, table in given.items()}
    found = {}
    for key, table in given.items():
        if file.checked(key, table, dict, "an object") is not None:
            found[names[key]] = _queue(file, names[key], table, names)
    return found


def _name(key: str, table: Any) -> str:
    """Return the name of a queue, to which ElasticMQ adds `.fifo`."""
    is_fifo = isinstance(table, dict) and table.get("fifo") is True
    return key if not is_fifo or key.endswith(".fifo") else key + ".fifo"


def _queue(file: LocatedFile, queue: str, given: Table, names: Mapping[FileKey, FileKey]) -> Table:
    table: Table = {}
    for key, value in given.items():
        field = key.renamed(_FIELDS.get(key, key))
        if key in ("copyTo", "moveTo"):
            file.warn(key, "is ignored: subscribe queues to a topic instead")
        elif key == "deadLettersQueue":
            table |= _dead_letters(file, key, value, names)
        elif field == key != "tags":
            if key != "fifo":
                file.warn(key, _UNKNOWN)
        elif field.endswith(("_timeout", "_seconds")):
            table[field] = _seconds(file, key, value)
        elif queue.endswith(".fifo") or key == "tags":
            table[field] = value
    return table


def _dead_letters(
    file: LocatedFile, key: FileKey, given: Any, names: Mapping[FileKey, FileKey]
) -> Table:
    if not isinstance(given, dict) or not isinstance(given.get("name"), str):
        file.refuse(key, "has to be an object with name and maxReceiveCount")
        return {}
    for name in given.keys() - {"name", "maxReceiveCount"}:
        file.warn(name, _UNKNOWN)
    return {
        key.renamed("dead_letter_queue"): names.get(given["name"], given["name"]),
        key.renamed("max_receive_count"): given.get("maxReceiveCount", 3),
    }


def _seconds(file: LocatedFile, key: FileKey, given: Any) -> int:
    match = _DURATION.fullmatch(str(given).strip())
    if match is None or match[2] not in _SECONDS:
        file.refuse(key, f"{given!r} is not a duration: {_ALLOWED}")
        return 0
    return int(float(match[1]) * _SECONDS[match[2]])
