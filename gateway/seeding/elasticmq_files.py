"""`elasticmq.conf` as tables of a seed. Keys follow ElasticMQ's reference.conf; others become
warnings."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from queuegate.gateway.seeding.hocon import Place
from queuegate.gateway.seeding.located_files import LocatedFile

_SERVER = re.compile(
    "node-address|rest-sqs|rest-stats|generate-node-address|akka|pekko|(queues-|messages-)?storage"
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
    "deadLettersQueue": "dead_letter_queue",
}
_FORWARDS = "copyTo", "moveTo"
_AUTOMATIC = "auto-create-queues"


def translate_elasticmq(file: LocatedFile) -> dict[str, Any]:
    """Return the tables of a seed file. `aws` names account and region."""
    data = file.data
    aws, queues = data.get("aws", {}), data.get("queues", {})
    seed: dict[str, Any] = {"queues": {}}
    for key, given in (("aws", aws), ("queues", queues)):
        if not isinstance(given, dict):
            file.refuse((key,), "has to be an object")
            return seed
    if "region" in aws:
        seed["region"] = str(aws["region"])
        file.moved["region",] = ("aws", "region")
    if "accountId" in aws:
        seed["account"] = str(aws["accountId"]).zfill(12)
        file.moved["account",] = ("aws", "accountId")
    _warn(file, data)
    names = {key: _name(key, table) for key, table in queues.items()}
    for key, table in queues.items():
        file.moved["queues", names[key]] = ("queues", key)
        if isinstance(table, dict):
            seed["queues"][names[key]] = _queue(file, ("queues", key), table, names)
        else:
            file.refuse(("queues", key), "has to be an object")
    return seed


def _warn(file: LocatedFile, data: Mapping[str, Any]) -> None:
    """Name the settings that have no effect."""
    for key in data.keys() - {"queues", "aws", _AUTOMATIC}:
        if _SERVER.fullmatch(key) is None:
            file.warn((key,), "is unknown and ignored")
    limits = data.get("rest-sqs")
    if isinstance(limits, dict) and limits.get("sqs-limits", "strict") != "strict":
        file.warn(("rest-sqs", "sqs-limits"), "is ignored: the limits are always those of SQS")
    automatic = data.get(_AUTOMATIC)
    if isinstance(automatic, dict) and automatic.get("enabled") is True:
        file.warn((_AUTOMATIC,), "is ignored: name queues here, or create them by CreateQueue")


def _name(key: str, table: Any) -> str:
    """Return the name of a queue, to which ElasticMQ adds `.fifo`."""
    is_fifo = isinstance(table, dict) and table.get("fifo") is True
    return key if not is_fifo or key.endswith(".fifo") else key + ".fifo"


def _queue(
    file: LocatedFile, place: Place, given: Mapping[str, Any], names: Mapping[str, str]
) -> dict[str, Any]:
    is_fifo = names[str(place[-1])].endswith(".fifo")
    table: dict[str, Any] = {}
    for key, value in given.items():
        name = _FIELDS.get(key)
        inner = (*place, key)
        if name is not None:
            file.moved["queues", names[str(place[-1])], name] = inner
        if key in _FORWARDS:
            file.warn(inner, "is ignored: subscribe queues to a topic instead")
        elif name is None and key != "fifo":
            file.warn(inner, "is unknown and ignored")
        elif name == "dead_letter_queue":
            table |= _dead_letters(file, inner, value, names)
        elif name is not None and name.endswith(("_timeout", "_seconds")):
            table[name] = _duration(file, inner, value)
        elif name is not None and (is_fifo or name == "tags"):
            table[name] = value
    return table


def _dead_letters(
    file: LocatedFile, place: Place, given: Any, names: Mapping[str, str]
) -> dict[str, Any]:
    if not isinstance(given, dict) or not isinstance(given.get("name"), str):
        file.refuse(place, "has to be an object with name and maxReceiveCount")
        return {}
    for key in given.keys() - {"name", "maxReceiveCount"}:
        file.warn((*place, key), "is unknown and ignored")
    target = names.get(given["name"], given["name"])
    return {"dead_letter_queue": target, "max_receive_count": given.get("maxReceiveCount", 3)}


def _duration(file: LocatedFile, place: Place, given: Any) -> str:
    """Return whole seconds."""
    match = _DURATION.fullmatch(str(given).strip())
    if match is None or match[2] not in _SECONDS:
        file.refuse(place, f"{given!r} is not a duration: {_ALLOWED}")
        return "0"
    return str(int(float(match[1]) * _SECONDS[match[2]]))
