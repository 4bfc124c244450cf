"""Message attributes as they are kept: JSON, binary values in base64."""

import binascii
from collections.abc import Mapping
from typing import Any


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
