"""Whether a long body holds more than anybody means, before an object is made for each part of it.

Messages are taken over as they are, however many values are in them; headers and entries are not.
"""

from __future__ import annotations

from collections.abc import Generator

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from queuegate.gateway.operations.runtime.limits import LIMITS
from queuegate.protocol import json_wire
from queuegate.storage.errors import MalformedInput

SHORT = 65_536
"""Bytes that need no counting: they hold nobody up, whatever they are."""

_PARTS_AT_ONCE = 16


class _Part(Struct):
    """What of an entry may be long: these are skipped, not decoded."""

    message: Raw = Raw(b"")
    payload: Raw = Raw(b"")
    headers: Raw = Raw(b"")
    target: Raw = Raw(b"")


# An array of at most so many elements: decoding ends at the first one too many, where a list would
# be made to its end.
_Batch = msgspec.defstruct(
    "_Batch",
    [(f"part_{number}", Raw | UnsetType, UNSET) for number in range(LIMITS.sent_messages)],
    array_like=True,
    forbid_unknown_fields=True,
)
_batch = msgspec.json.Decoder(_Batch)
_part = msgspec.json.Decoder(_Part)


def check_parts(body: bytes) -> Generator[None, None, None]:
    """Look at a body of one message or a batch; others can have their turn whenever this yields.

    Raises MalformedInput for too many entries and for more than ``Limits.request_bytes`` beside
    messages and headers, Malformed for headers of more than ``json_wire.MOST_VALUES`` values
    together, and msgspec.DecodeError for what is not JSON.
    """
    if len(body) <= SHORT:
        return
    parts = [body]
    if body[:SHORT].lstrip()[:1] == b"[":
        try:
            found = msgspec.structs.astuple(_batch.decode(body))
        except msgspec.ValidationError:
            raise MalformedInput(
                f"The body is refused: expected an array of length <= {LIMITS.sent_messages}."
            ) from None
        parts = [bytes(one) for one in found if one is not UNSET]
        yield
    rest = len(body)
    headers: list[bytes] = []
    for number, part in enumerate(parts):
        if number % _PARTS_AT_ONCE == 0 or len(part) > SHORT:
            yield
        rest -= _note(part, headers)
    if rest > LIMITS.request_bytes:
        raise MalformedInput(
            f"There are {rest} bytes beside messages and headers; {LIMITS.request_bytes} are the "
            "most."
        )
    yield
    yield from json_wire.count_values(headers[0] if len(headers) == 1 else b",".join(headers))


def _note(part: bytes, headers: list[bytes], *, is_target: bool = False) -> int:
    """Add the headers of a part; the bytes of these and of its message.

    A schedule has both in its ``target``, which has no target of its own: each look reads it all.
    """
    if part[:SHORT].lstrip()[:1] != b"{":
        return 0
    found = _part.decode(part)
    size = memoryview(found.message).nbytes + memoryview(found.payload).nbytes
    if found.headers:
        headers.append(bytes(found.headers))
        size += len(headers[-1])
    if found.target and not is_target:
        size += _note(bytes(found.target), headers, is_target=True)
    return size
