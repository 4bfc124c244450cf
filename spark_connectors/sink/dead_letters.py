"""Messages that stand for rows which were refused for good."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Mapping

from spark_connectors.errors import Fault
from spark_connectors.sink.entries import Attributes, Row, is_sendable, size_of_attributes
from spark_connectors.sink.options import MOST_QUEUE_BYTES
from spark_connectors.sink.packing import Destination
from spark_connectors.transport.aws.wire import Entry

_GROUP = "dead-letters"
_GROUP_ID = re.compile("[!-~]{1,128}")
_MOST_REASON = 1024
_MOST_ATTRIBUTES_BYTES = 64 << 10


def dead_letter(row: Row, raw: bytes | None, fault: Fault, queue: Destination) -> Row:
    """The message that says what was refused and why.

    The body is the row's, in base64 where SQS would not take it as text, and cut where it does not
    fit beside the attributes; ``original_body_bytes`` then says how long it was.
    """
    body, attributes = _body(raw)
    entry = row.entry
    described = {
        "error_code": fault.code,
        "error_message": fault.message[:_MOST_REASON],
        "original_destination": row.destination.address,
        "original_group_id": entry.group_id,
        "original_deduplication_id": entry.deduplication_id,
        "original_attributes": _as_json(entry.attributes),
    }
    attributes |= {name: ("String", _legal(text)) for name, text in described.items() if text}
    body = _fitting(body, attributes)
    letter = Entry(body, attributes)
    if queue.is_fifo:
        # The digest keeps a retried task from leaving the letter twice.
        known = json.dumps([body, *sorted((n, str(v)) for n, v in attributes.items())])
        letter = letter._replace(
            group_id=_group(entry.group_id),
            deduplication_id=hashlib.sha256(known.encode()).hexdigest(),
        )
    size = len(body.encode()) + size_of_attributes(attributes)
    return Row(letter, size, queue, row.position, is_dead_letter=True)


def _group(given: str | None) -> str:
    # The row may have been refused for its group.
    return given if given and _GROUP_ID.fullmatch(given) else _GROUP


def _body(raw: bytes | None) -> tuple[str, Attributes]:
    if not raw:
        return "(none)", {"body_encoding": ("String", "absent")}
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        text = ""
    if text and is_sendable(raw):
        return text, {}
    return base64.b64encode(raw).decode(), {"body_encoding": ("String", "base64")}


def _fitting(body: str, attributes: Attributes) -> str:
    """The body, or what of it fits; adds to the attributes how long it was."""
    whole = body.encode()
    if len(whole) + size_of_attributes(attributes) <= MOST_QUEUE_BYTES:
        return body
    attributes["original_body_bytes"] = ("Number", str(len(whole)))
    room = MOST_QUEUE_BYTES - size_of_attributes(attributes)
    # A multiple of four keeps base64 whole; a character cut in two is left out.
    return whole[: room // 4 * 4].decode(errors="ignore")


def _as_json(attributes: Mapping[str, tuple[str, str | bytes]]) -> str:
    if not attributes:
        return ""
    shown = {
        name: [kind, value if isinstance(value, str) else base64.b64encode(value).decode()]
        for name, (kind, value) in attributes.items()
    }
    text = json.dumps(shown)
    return text if len(text) <= _MOST_ATTRIBUTES_BYTES else ""


def _legal(text: str) -> str:
    return text if is_sendable(text.encode()) else ascii(text)
