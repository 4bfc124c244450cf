"""Message attributes: AWS's rules (docs/contract/sqs.md 2.1, 2.4) and the selection by a
receive."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Mapping
from typing import Any, NamedTuple

import orjson

from queuegate.gateway.faces.aws.aws_rules import AWS
from queuegate.gateway.operations.queues.json_messages import Values, stored
from queuegate.gateway.operations.runtime.limits import Limits
from queuegate.protocol import names
from queuegate.protocol.digests import md5_of_attributes
from queuegate.storage.storage_errors import InvalidParameterValue, UnsupportedOperation

_RESERVED = (
    "You can't use message attribute names beginning with 'AWS.' or 'Amazon.'. These strings are "
    "reserved for internal use."
)
_CHARACTERS = (
    "Message (user) attribute name can only contain upper and lower score characters, digits, "
    "periods, hyphens and underscores. "
)


class Checked(NamedTuple):
    """Valid attributes: as stored, their MD5, and the bytes that count towards the message."""

    stored: str | None
    md5: str | None
    size_bytes: int


NOTHING = Checked(None, None, 0)


def check(values: Values | None, limits: Limits) -> Checked:
    """Check the attributes of one message. Raises InvalidParameterValue."""
    if not values:
        return NOTHING
    if len(values) > AWS.message_attributes:
        raise InvalidParameterValue(
            f"Number of message attributes [{len(values)}] exceeds the allowed maximum "
            f"[{AWS.message_attributes}]."
        )
    size = 0
    for name, value in values.items():
        _check_name(name, limits)
        size += len(name.encode()) + _check_value(name, value)
    if size > limits.message_bytes:
        # Too long for any message: the sender refuses it by this size, without more work on
        # megabytes.
        return Checked(None, None, size)
    return Checked(stored(values), md5_of_attributes(values), size)


def _check_name(name: str, limits: Limits) -> None:
    fault = names.attribute_name_fault(name)
    if fault is None:
        return
    if fault == "empty":
        raise InvalidParameterValue("The message attribute name must not be empty.")
    if fault == "length":
        raise InvalidParameterValue(
            "Message (user) attribute name must be shorter than "
            f"{AWS.attribute_name_length + 1} characters."
        )
    if fault == "dots":
        raise InvalidParameterValue(
            f"Message (user) attribute '{name}' must not start or end with a period or have "
            "periods in succession."
        )
    raise InvalidParameterValue(_RESERVED if fault == "reserved" else _CHARACTERS)


def _check_value(name: str, value: Mapping[str, Any]) -> int:
    """Return the bytes of type and value."""
    if value.get("StringListValues") or value.get("BinaryListValues"):
        raise UnsupportedOperation(
            "Message attribute list values in SendMessage are not supported."
        )
    data_type = value.get("DataType")
    if not data_type:
        raise InvalidParameterValue(
            f"The message attribute '{name}' must contain a non-empty message attribute type."
        )
    fault = names.data_type_fault(data_type)
    if fault == "length":
        raise InvalidParameterValue(
            f"Message (user) attribute '{name}' has a data type of more than 255 bytes."
        )
    if fault is not None:
        raise InvalidParameterValue(
            f"The type of message (user) attribute '{name}' is invalid. You must use only the "
            'following supported type prefixes: "String", "Binary", or "Number", '
            f"but was: {data_type}"
        )
    kind = names.base_type(data_type)
    payload = value.get("BinaryValue" if kind == "Binary" else "StringValue")
    if not payload:
        raise InvalidParameterValue(
            f"Message (user) attribute '{name}' must contain a non-empty value of type '{kind}'."
        )
    type_bytes = len(data_type.encode())
    if kind == "Binary":
        return type_bytes + len(payload)
    if names.invalid_characters(payload):
        raise InvalidParameterValue(
            f"Invalid characters found in the value of message attribute '{name}'."
        )
    if kind == "Number" and not names.is_number(payload):
        raise InvalidParameterValue(
            f"Can't cast the value of message (user) attribute '{name}' to a number."
        )
    return type_bytes + len(payload.encode())


class AttributeSelection:
    """The selection of MessageAttributeNames, compiled once for all messages of a receive.

    ``All`` and ``.*`` select every attribute, ``prefix.*`` those that begin with the prefix (the
    dot is not required). Other names are exact, and unknown names select nothing
    (docs/contract/sqs.md 2.5). The number of names is not limited.
    """

    __slots__ = ("_exact", "_is_everything", "_prefixes")

    def __init__(self, wanted: tuple[str, ...]) -> None:
        self._exact = frozenset(wanted)
        self._is_everything = not self._exact.isdisjoint(("All", ".*", "*"))
        # No prefix begins with another one, so only the last prefix at or before a name can match
        # it.
        self._prefixes: list[str] = []
        for prefix in sorted([name[:-2] for name in wanted if name.endswith(".*")]):
            if not self._prefixes or not prefix.startswith(self._prefixes[-1]):
                self._prefixes.append(prefix)

    def of(self, kept: str) -> dict[str, Any] | None:
        """Return the selected attributes of a stored message; None: there are none."""
        values: dict[str, Any] = orjson.loads(kept)
        if self._is_everything:
            return values
        exact, prefixes = self._exact, self._prefixes
        chosen = {
            name: value
            for name, value in values.items()
            if name in exact or (prefixes and name.startswith(prefixes[bisect(prefixes, name) - 1]))
        }
        return chosen or None
