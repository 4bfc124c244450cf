"""Message attributes as queues keep them."""

from __future__ import annotations

import binascii
from collections.abc import Mapping
from typing import Any

import orjson

Values = Mapping[str, Mapping[str, Any]]
"""{name: {"DataType": ..., "StringValue": str | "BinaryValue": bytes}}, as wires decode them."""


def stored(values: Values) -> str:
    """The JSON that a message keeps: binary values in base64, as the JSON wire shows them."""
    return orjson.dumps(values, default=_base64).decode()


def _base64(value: object) -> str:
    if isinstance(value, bytes):
        return binascii.b2a_base64(value, newline=False).decode()
    raise TypeError(type(value))
