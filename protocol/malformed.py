"""The exception for invalid input: the only one that ``protocol`` raises."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

Kind = Literal["serialization", "signature", "receipt", "arn"]


class Malformed(Exception):
    """Invalid bytes or text from outside. `str(error)` may be shown to the caller: it quotes only
    names and numbers of the input. `kind` lets a face choose the form of its refusal without
    reading the text."""

    def __init__(self, message: str, kind: Kind = "serialization") -> None:
        super().__init__(message)
        self.kind = kind


@contextmanager
def refusing(refusal: Exception | type[Exception], *errors: type[Exception]) -> Iterator[None]:
    """Raise this refusal in place of such errors, of Malformed by default. A class takes the text
    of the error. For cold paths: a ``try`` costs nothing."""
    expected = errors or (Malformed,)
    try:
        yield
    except expected as error:
        raise (refusal(str(error)) if isinstance(refusal, type) else refusal) from None
