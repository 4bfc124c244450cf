"""Loads the JSON vectors of the wire contract."""

import base64
import json
from pathlib import Path
from typing import Any

_FOLDER = Path(__file__).parent / "vectors"


def load(name: str) -> Any:
    return json.loads((_FOLDER / f"{name}.json").read_text(encoding="utf-8"))


def with_bytes(value: Any) -> Any:
    """The vectors write bytes as `{"$base64": text}`."""
    if isinstance(value, dict):
        if value.keys() == {"$base64"}:
            return base64.b64decode(value["$base64"])
        return {key: with_bytes(item) for key, item in value.items()}
    if isinstance(value, list):
        return [with_bytes(item) for item in value]
    return value
