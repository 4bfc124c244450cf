"""The one exception of this package."""

from typing import Literal

Kind = Literal["serialization", "signature", "receipt", "arn"]


class Malformed(Exception):
    """Bytes or text from outside that are not what they have to be.

    `str(error)` may be shown to the caller: it quotes none of the input but a name or a number.
    `kind` lets a face choose the form of its refusal without reading the text.
    """

    def __init__(self, message: str, kind: Kind = "serialization") -> None:
        super().__init__(message)
        self.kind = kind
