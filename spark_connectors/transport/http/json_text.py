"""JSON through orjson where it is installed, through the standard library where it is not.

Bytes are written as base64, as SQS wants them.
"""

from __future__ import annotations

import base64
from typing import Any


def _as_text(value: object) -> str:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    raise TypeError(f"{type(value).__name__} is nothing that JSON can hold")


try:
    import orjson
except ImportError:
    import json

    def dumps(value: object) -> bytes:
        """The value as JSON in UTF-8. Raises TypeError or ValueError for what JSON cannot hold."""
        text = json.dumps(value, default=_as_text, ensure_ascii=False, separators=(",", ":"))
        return text.encode("utf-8")

    def loads(data: bytes) -> Any:
        """The value of a JSON text. Raises ValueError when it is none."""
        return json.loads(data)
else:

    def dumps(value: object) -> bytes:
        """The value as JSON in UTF-8. Raises TypeError or ValueError for what JSON cannot hold."""
        return orjson.dumps(value, default=_as_text)

    def loads(data: bytes) -> Any:
        """The value of a JSON text. Raises ValueError when it is none."""
        return orjson.loads(data)
