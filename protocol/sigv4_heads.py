"""What the signature of a hot request signs: a `POST` to a path that means itself, without a query,
in one piece. `protocol.sigv4` has the rules, and judges whatever takes a closer look.
"""

from collections.abc import Mapping
from hashlib import sha256
from operator import itemgetter
from typing import Final

from queuegate.protocol.sigv4 import ALGORITHM, Credential

READ: Final = frozenset(
    {
        b"amz-sdk-invocation-id",
        b"amz-sdk-request",
        b"x-amz-api-version",
        b"x-amz-content-sha256",
        b"x-amz-date",
        b"x-amz-security-token",
        b"x-amz-user-agent",
        b"x-amzn-query-mode",
    }
)
"""What SDKs sign beside the headers that every request is read for. Who signs another one takes a
closer look."""
_ALGORITHM = ALGORITHM.encode()
_NEEDED = {"host", "x-amz-date"}
_TARGET = b"x-amz-target"
_PAYLOAD = b"x-amz-content-sha256"


class SignedHead:
    """The head of an Authorization header, up to its signature: one client sends it all day."""

    __slots__ = ("_canonical", "_is_common", "_scope", "_signs_target", "_values", "credential")

    def __init__(self, credential: Credential) -> None:
        names = credential.signed_headers.split(";")
        lines = "".join(f"{name}:%b\n" for name in names)
        self.credential = credential
        self._is_common = {*names} >= _NEEDED and "%" not in credential.signed_headers
        self._signs_target = _TARGET.decode() in names
        self._values = itemgetter(*[name.encode() for name in names])
        self._canonical = f"POST\n%b\n\n{lines}\n{credential.signed_headers}\n%b".encode()
        self._scope = f"\n{credential.scope}\n".encode()

    def string_to_sign(
        self, path: bytes, headers: Mapping[bytes, bytes], body: bytes
    ) -> bytes | None:
        """The string to sign; None: this takes a closer look.

        `headers` has each of READ that was sent, once, its name in lower case and without blanks
        around its value.
        """
        if not self._is_common or (_TARGET in headers and not self._signs_target):
            return None
        payload = sha256(body).hexdigest().encode()
        if headers.get(_PAYLOAD, payload) != payload:
            return None
        try:
            canonical = self._canonical % (path, *self._values(headers), payload)
        except KeyError:
            return None
        # What is in a value several times is signed once.
        if b"  " in canonical or b"\t" in canonical:
            return None
        hashed = sha256(canonical).hexdigest().encode()
        return b"%b\n%b%b%b" % (_ALGORITHM, headers[b"x-amz-date"], self._scope, hashed)
