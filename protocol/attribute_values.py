"""Message attributes as they are kept: JSON, binary values in base64."""

import binascii
from collections.abc import Mapping
from typing import Any, Final

MOST_OF_RAW_COPIES: Final = 10
"""Attributes of a copy without an envelope, which has those of the message as its own."""


def with_bytes(values: Mapping[str, Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """Kept attributes with binary values as bytes, as digests, envelopes and wires take them."""
    return {
        name: (
            {**value, "BinaryValue": binascii.a2b_base64(value["BinaryValue"])}
            if "BinaryValue" in value
            else value
        )
        for name, value in values.items()
    }


def counted_bytes(values: Mapping[str, Mapping[str, Any]]) -> int:
    """What such attributes count towards the size of a message: names, types and values."""
    size = 0
    for name, value in values.items():
        payload = value.get("BinaryValue")
        if payload is None:
            payload = value.get("StringValue", "").encode()
        size += len(name.encode()) + len(value["DataType"].encode()) + len(payload)
    return size
