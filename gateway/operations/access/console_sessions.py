"""Sessions of the web console: a key in an encrypted cookie.

All processes on a database share the secret of cookies, so a session works at each of them and
survives a restart. A key that is revoked ends its sessions, because each request verifies the key.
"""

from __future__ import annotations

import base64
import re
from dataclasses import replace
from hashlib import blake2b
from hmac import compare_digest
from secrets import token_bytes
from typing import TYPE_CHECKING

from queuegate.storage.storage_errors import AccessDenied

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cryptography.fernet import Fernet

    from queuegate.gateway.operations.access.caller import Caller

COOKIE = "queuegate_session"
SESSION_PATH = "/console/session"
SESSION_SECONDS = 8 * 3600
TOKEN_HEADER = "x-csrf-token"
PLACE_HEADER = "x-queuegate-place"
"""The header of a session with the account and region of a request. None: those of its key."""
_PLACE = re.compile(r"([0-9]{12})/([a-z0-9-]{1,64})").fullmatch
READS = ("GET", "HEAD")


class ConsoleSessions:
    """Makes and reads cookies. It has a random secret until ``use`` is called."""

    __slots__ = ("_fernet", "_may_change", "_secret")

    def __init__(self) -> None:
        self.use(token_bytes(32), may_change=False)

    def use(self, secret: bytes, *, may_change: bool) -> None:
        """Derive the key of cookies from the secret that the database has. Sessions can only read
        unless they ``may_change`` something."""
        self._may_change = may_change
        derived = blake2b(secret, digest_size=32, person=b"queuegate.web").digest()
        self._secret = base64.urlsafe_b64encode(derived)
        self._fernet: Fernet | None = None

    def _cipher(self) -> Fernet:
        if self._fernet is None:
            # Most processes never see a cookie, and the import takes 20 ms.
            from cryptography.fernet import Fernet

            self._fernet = Fernet(self._secret)
        return self._fernet

    def _key_of(self, cookie: str) -> str | None:
        """Return the key of a cookie; None: the cookie is wrong or too old."""
        from cryptography.fernet import InvalidToken

        try:
            padded = cookie.encode() + b"=" * (-len(cookie) % 4)
            return self._cipher().decrypt(padded, ttl=SESSION_SECONDS).decode()
        except InvalidToken:
            return None

    def start(self, key: str) -> tuple[str, str]:
        """Return the cookie of a key, and the token that its requests show when they change
        something. An access key and its secret are separated by a blank."""
        # Without padding: a cookie with "=" would be quoted.
        cookie = self._cipher().encrypt(key.encode()).decode().rstrip("=")
        return cookie, _token(cookie)

    def token_of(self, headers: Mapping[str, str]) -> str | None:
        """Return the token of a request's cookie; None: it has none."""
        cookie = _cookie(headers)
        return _token(cookie) if cookie else None

    def authorized(
        self, method: str, path: str, headers: Mapping[str, str], *, is_reading: bool
    ) -> Mapping[str, str]:
        """Return the headers of a request, with the key of its session if it has a valid cookie
        and no credentials.

        A GET needs the token, too: ``GET /?Action=DeleteQueue`` changes something.
        """
        if "cookie" not in headers or "authorization" in headers:
            return headers
        cookie = _cookie(headers)
        if not cookie:
            return headers
        shown = headers.get(TOKEN_HEADER, "").encode()
        has_token = compare_digest(shown, _token(cookie).encode())
        if not has_token and (path != SESSION_PATH or method not in READS):
            return headers
        if not (self._may_change or is_reading or path == SESSION_PATH):
            return headers
        key = self._key_of(cookie)
        return headers if key is None else {**headers, "authorization": f"Bearer {key}"}


def placed(caller: Caller, headers: Mapping[str, str]) -> Caller:
    """Return the caller of a session in the account and region that its page has chosen. Raise
    AccessDenied for an account that is not the caller's, unless it is an administrator's key."""
    chosen = headers.get(PLACE_HEADER)
    if chosen is None:
        return caller
    found = _PLACE(chosen)
    if found is None:
        raise AccessDenied(f"{PLACE_HEADER} is an account and a region: 111122223333/eu-west-1.")
    if found[1] != caller.account_id and not caller.is_administrator:
        raise AccessDenied("Only the key of an administrator shows other accounts.")
    return replace(caller, account_id=found[1], region=found[2])


def _cookie(headers: Mapping[str, str]) -> str:
    for one in headers.get("cookie", "").split(";"):
        name, _, value = one.strip().partition("=")
        if name == COOKIE:
            return value
    return ""


def _token(cookie: str) -> str:
    return blake2b(cookie.encode(), digest_size=16, person=b"queuegate.csrf").hexdigest()
