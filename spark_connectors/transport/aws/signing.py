"""AWS Signature Version 4."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence
from urllib.parse import quote

from spark_connectors.transport.aws.sessions import Keys

_ALGORITHM = "AWS4-HMAC-SHA256"


def _hmac(key: bytes, text: str) -> bytes:
    return hmac.digest(key, text.encode("utf-8"), "sha256")


class Signer:
    """Signs for one service and region; the key that is derived once a day is kept."""

    def __init__(self, service: str, region: str) -> None:
        self._service = service
        self._region = region
        self._derived: tuple[str, str, bytes] = ("", "", b"")

    def authorization(
        self,
        keys: Keys,
        method: str,
        target: str,
        *,
        headers: Sequence[tuple[str, str]],
        body: bytes,
        timestamp: str,
    ) -> str:
        """The Authorization header. ``target`` is path and query as sent, names of the query in
        order; ``headers`` are all those to sign, lower-case names in order, values without
        needless spaces; ``timestamp`` is that of X-Amz-Date, such as 20261121T223000Z."""
        day = timestamp[:8]
        path, _, query = target.partition("?")
        names = ";".join([name for name, _ in headers])
        lines = "".join([f"{name}:{value}\n" for name, value in headers])
        payload = hashlib.sha256(body).hexdigest()
        request = (
            f"{method}\n{quote(path, safe='/~')}\n{query}\n{lines}\n{names}\n{payload}".encode()
        )
        scope = f"{day}/{self._region}/{self._service}/aws4_request"
        digest = hashlib.sha256(request).hexdigest()
        signature = _hmac(
            self._key(keys.secret_key, day), f"{_ALGORITHM}\n{timestamp}\n{scope}\n{digest}"
        ).hex()
        return (
            f"{_ALGORITHM} Credential={keys.access_key}/{scope}, "
            f"SignedHeaders={names}, Signature={signature}"
        )

    def _key(self, secret: str, day: str) -> bytes:
        # Read and replaced as a whole, so that threads with different keys do not mix them.
        known_secret, known_day, key = self._derived
        if known_secret != secret or known_day != day:
            key = f"AWS4{secret}".encode()
            for part in (day, self._region, self._service, "aws4_request"):
                key = _hmac(key, part)
            self._derived = (secret, day, key)
        return key
