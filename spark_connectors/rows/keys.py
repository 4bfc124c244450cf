"""What the connector remembers of a message that it has seen."""

from __future__ import annotations

import hashlib
import re

_UUID = re.compile("[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def message_key(message_id: str) -> bytes:
    """16 bytes that stand for the message: the UUID's own, otherwise the MD5 of the text.

    Two ids never share a key because one of them is written otherwise (upper case, braces): a
    shared key would drop an honest message as a redelivery. Hence only the canonical form is a
    UUID here.
    """
    if _UUID.fullmatch(message_id):
        return bytes.fromhex(message_id.replace("-", ""))
    text = message_id.encode("utf-8", "surrogatepass")
    return hashlib.md5(text, usedforsecurity=False).digest()
