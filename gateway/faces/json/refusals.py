"""What a refusal is in, on the faces that share `/v1`."""

from __future__ import annotations

from msgspec import Struct


class Error(Struct):
    """Why a request was refused. The text says what to change."""

    error: str
