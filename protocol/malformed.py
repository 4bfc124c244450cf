"""The exception for invalid input: the only one that ``protocol`` raises."""

from __future__ import annotations

from typing import Literal

Kind = Literal["serialization", "signature", "receipt", "arn"]


class Malformed(Exception):
    """Invalid bytes or text from outside. `str(error)` may be shown to the caller: it quotes only
    names and numbers of the input. `kind` lets a face choose the form of its refusal without
    reading the text."""

    def __init__(self, message: str, kind: Kind = "serialization") -> None:
        super().__init__(message)
        self.kind = kind
