"""AWS Signature Version 4: the claim of a request, and its verification (docs/contract/protocol.md
1.6).

The last part serves hot requests: a `POST` to a canonical path, without a query, in one piece. All
others take the general functions.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from email.utils import parsedate_to_datetime
from functools import lru_cache
from hashlib import sha256
from operator import itemgetter
from typing import Final, Literal, NamedTuple
from urllib.parse import quote, unquote_to_bytes

from queuegate.protocol.malformed import Malformed

Verdict = Literal["valid", "skewed", "mismatch"]

ALGORITHM: Final = "AWS4-HMAC-SHA256"
CLOCK_SKEW: Final = timedelta(minutes=15)
LONGEST_EXPIRY_SECONDS: Final = 604_800
UNSIGNED_PAYLOAD: Final = "UNSIGNED-PAYLOAD"
"""Value in place of the hash of a body that the signature does not cover."""

_ACCESS_KEY = re.compile(r"[!-~]{1,128}")
_REGION = re.compile(r"[a-z0-9-]{1,64}")
_DATE = re.compile(r"[0-9]{8}")
_SIGNATURE = re.compile(r"[0-9a-fA-F]{64}")
_BASIC_TIME = re.compile(r"[0-9]{8}T[0-9]{6}Z")
_EXPIRES = re.compile(r"[0-9]{1,6}")
_SPACES = re.compile(r"[ \t]+")
_LONGEST_HEAD = 2048
_PRESIGNED = [
    f"X-Amz-{name}"
    for name in ("Algorithm", "Credential", "Date", "Expires", "SignedHeaders", "Signature")
]


class Credential(NamedTuple):
    """The claim of a request. `expires_seconds` is None unless the URL itself was signed."""

    access_key: str
    date: str
    region: str
    service: str
    signed_headers: str
    signature: str
    expires_seconds: int | None = None

    @property
    def scope(self) -> str:
        return f"{self.date}/{self.region}/{self.service}/aws4_request"


@dataclass(frozen=True, slots=True)
class SignedRequest:
    """The signed parts of a request. Path and query are encoded as received; header names are lower
    case."""

    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    body: bytes


def parse_authorization(header: str) -> Credential:
    """Parse the claim in an Authorization header. Raises Malformed."""
    head, found, signature = header.rpartition("Signature=")
    if not found or len(head) > _LONGEST_HEAD or _SIGNATURE.fullmatch(signature) is None:
        raise _malformed()
    # A client repeats the same head.
    access_key, date, region, service, signed_headers = _parse_head(head)
    return Credential(access_key, date, region, service, signed_headers, signature)


@lru_cache(maxsize=1024)
def _parse_head(head: str) -> tuple[str, str, str, str, str]:
    algorithm, _, rest = head.strip().partition(" ")
    if algorithm != ALGORITHM:
        raise _malformed()
    fields = dict(_field(part) for part in rest.split(",") if part.strip())
    signed_headers = _parse_names(fields.get("SignedHeaders", ""))
    return (*_parse_scope(fields.get("Credential", "")), signed_headers)


def _field(part: str) -> tuple[str, str]:
    name, _, value = part.strip().partition("=")
    return name, value


def _parse_names(text: str) -> str:
    """Parse SignedHeaders, without repeated names. Each repetition would add the value again, and a
    request of 64 KB could make the gateway hash gigabytes."""
    names = text.split(";")
    if not text or len({*names}) != len(names):
        raise _malformed()
    return text


def _scope_of(text: str) -> tuple[str, str, str, str]:
    """Parse access key, date, region and service. Key and region become parts of ARNs."""
    parts = text.rsplit("/", 4)
    if len(parts) != 5 or parts[4] != "aws4_request" or not all(parts):
        raise _malformed()
    access_key, date, region, service, _ = parts
    if not (_ACCESS_KEY.fullmatch(access_key) and _REGION.fullmatch(region)):
        raise _malformed()
    return access_key, date, region, service


def _parse_scope(text: str) -> tuple[str, str, str, str]:
    found = _scope_of(text)
    if _DATE.fullmatch(found[1]) is None:
        raise _malformed()
    return found


def claimed(header: str) -> tuple[str, str]:
    """Return access key and region of an unverified Authorization header. Any text is a signature.
    Raises Malformed without the scope of a Credential, SignedHeaders or Signature
    (docs/contract/protocol.md 1.2)."""
    _, _, rest = header.strip().partition(" ")
    fields = dict(_field(part) for part in rest.split(",") if part.strip())
    if not fields.get("SignedHeaders") or not fields.get("Signature"):
        raise _malformed()
    access_key, _, region, _ = _scope_of(fields.get("Credential", ""))
    return access_key, region


def claimed_by_query(params: Mapping[str, str]) -> tuple[str, str] | None:
    """Return access key and region of a URL's parameters; None: it has no signature."""
    if "X-Amz-Signature" not in params:
        return None
    if not all(params.get(name) for name in _PRESIGNED):
        raise _malformed()
    access_key, _, region, _ = _scope_of(params["X-Amz-Credential"])
    return access_key, region


def parse_presigned(params: Mapping[str, str]) -> Credential | None:
    """Parse the claim in the parameters of a URL; None: there is none. Raises Malformed.
    X-Amz-Signature makes a query presigned: the other five parameters must then be present and
    valid."""
    if "X-Amz-Signature" not in params:
        return None
    signature = params["X-Amz-Signature"]
    signed_headers = _parse_names(params.get("X-Amz-SignedHeaders", ""))
    expires = params.get("X-Amz-Expires", "")
    if (
        params.get("X-Amz-Algorithm") != ALGORITHM
        or _BASIC_TIME.fullmatch(params.get("X-Amz-Date", "")) is None
        or _SIGNATURE.fullmatch(signature) is None
        or _EXPIRES.fullmatch(expires) is None
        or not 1 <= int(expires) <= LONGEST_EXPIRY_SECONDS
    ):
        raise _malformed()
    scope = _parse_scope(params.get("X-Amz-Credential", ""))
    return Credential(*scope, signed_headers, signature, int(expires))


def verify(
    request: SignedRequest, credential: Credential, secret_key: str, timestamp: str, now: datetime
) -> Verdict:
    """Return the verdict on the signature of this request with `secret_key`, and on its time.
    `timestamp` comes from `request_timestamp`. The time is checked first, as a replay needs no
    signature check. An X-Amz-Target must be signed, because it names the action; headers of proxies
    need not be."""
    if not is_in_time(credential, timestamp, now):
        return "skewed"
    signed_headers = credential.signed_headers.split(";")
    if "host" not in signed_headers or not _has_payload(request):
        return "mismatch"
    if "x-amz-target" in request.headers and "x-amz-target" not in signed_headers:
        return "mismatch"
    to_sign = string_to_sign(canonical_request(request, credential), timestamp, credential.scope)
    key = signing_key(secret_key, credential.date, credential.region, credential.service)
    expected = sign(key, to_sign)
    return "valid" if hmac.compare_digest(expected, credential.signature.lower()) else "mismatch"


def _has_payload(request: SignedRequest) -> bool:
    """Return True if the body has the hash that the request names, if it names one."""
    named = request.headers.get("x-amz-content-sha256")
    if named is None or named == UNSIGNED_PAYLOAD:
        return True
    return hmac.compare_digest(sha256(request.body).hexdigest().encode(), named.encode())


def request_timestamp(headers: Mapping[str, str], params: Mapping[str, str]) -> str:
    """Return the time of signing as ISO basic text: X-Amz-Date of the header or the URL, else Date.
    Raises Malformed."""
    text = headers.get("x-amz-date") or params.get("X-Amz-Date") or headers.get("date", "")
    if _BASIC_TIME.fullmatch(text):
        return text
    try:
        instant = parsedate_to_datetime(text)
    except ValueError:
        raise _malformed() from None
    return f"{instant:%Y%m%dT%H%M%SZ}"


def is_in_time(credential: Credential, timestamp: str, now: datetime) -> bool:
    """Return True if the signature is recent, and of the day that its scope names."""
    if timestamp[:8] != credential.date:
        return False
    try:
        signed_at = datetime.fromisoformat(timestamp)
    except ValueError:
        return False
    if credential.expires_seconds is None:
        return abs(now - signed_at) <= CLOCK_SKEW
    lifetime = timedelta(seconds=credential.expires_seconds)
    return -CLOCK_SKEW <= now - signed_at <= lifetime


def canonical_request(request: SignedRequest, credential: Credential) -> str:
    """Return the canonical request. A missing signed header counts as empty, so the signature does
    not match."""
    lines = [request.method, _canonical_path(request.path), _canonical_query(request.query)]
    for name in credential.signed_headers.split(";"):
        value = _SPACES.sub(" ", request.headers.get(name, "").strip(" \t"))
        lines.append(f"{name}:{value}")
    payload = request.headers.get("x-amz-content-sha256") or sha256(request.body).hexdigest()
    lines += ["", credential.signed_headers, payload]
    return "\n".join(lines)


def _canonical_path(path: str) -> str:
    """Remove dot segments and encode every segment again: clients of all services but S3 encode
    twice."""
    segments: list[str] = []
    for segment in path.split("/"):
        if segment == "..":
            if segments:
                segments.pop()
        elif segment and segment != ".":
            segments.append(quote(segment, safe="~"))
    if not segments:
        return "/"
    end = "/" if path.endswith("/") else ""
    return "/" + "/".join(segments) + end


def _canonical_query(query: str) -> str:
    pairs = []
    for part in query.split("&"):
        name, _, value = part.partition("=")
        if part and name != "X-Amz-Signature":
            pairs.append((_encoded_once(name), _encoded_once(value)))
    pairs.sort()
    return "&".join(f"{name}={value}" for name, value in pairs)


def _encoded_once(text: str) -> str:
    return quote(unquote_to_bytes(text), safe="~")


def string_to_sign(canonical: str, timestamp: str, scope: str) -> str:
    # Headers are latin-1 in Python: each character is a received byte.
    hashed = sha256(canonical.encode("latin-1", "replace")).hexdigest()
    return f"{ALGORITHM}\n{timestamp}\n{scope}\n{hashed}"


@lru_cache(maxsize=4096)
def signing_key(secret_key: str, date: str, region: str, service: str) -> bytes:
    """Return the key of one day, region and service; cached, because it takes four digests."""
    key = f"AWS4{secret_key}".encode()
    for part in (date, region, service, "aws4_request"):
        key = hmac.digest(key, part.encode(), "sha256")
    return key


def sign(key: bytes, to_sign: str) -> str:
    return hmac.digest(key, to_sign.encode(), "sha256").hex()


def authorization(
    request: SignedRequest, access_key: str, secret_key: str, region: str, service: str
) -> str:
    """Return the header Authorization that signs all headers of a request, X-Amz-Date included."""
    at = request.headers["x-amz-date"]
    names = ";".join(sorted(request.headers))
    claim = Credential(access_key, at[:8], region, service, names, "")
    to_sign = string_to_sign(canonical_request(request, claim), at, claim.scope)
    signature = sign(signing_key(secret_key, at[:8], region, service), to_sign)
    scope = f"Credential={access_key}/{claim.scope}"
    return f"{ALGORITHM} {scope}, SignedHeaders={names}, Signature={signature}"


@lru_cache(maxsize=4096)
def signing_mac(secret_key: str, date: str, region: str, service: str) -> hmac.HMAC:
    """Return the MAC with that key. Signers copy it, which costs a fifth of making one."""
    return hmac.new(signing_key(secret_key, date, region, service), digestmod="sha256")


def _malformed() -> Malformed:
    return Malformed("The signature of the request cannot be read.", kind="signature")


READ: Final = frozenset(
    b"""
    amz-sdk-invocation-id amz-sdk-request x-amz-api-version x-amz-content-sha256 x-amz-date
    x-amz-security-token x-amz-user-agent x-amzn-query-mode
    """.split()
)
"""Headers that SDKs sign beside those that are read from every request. Other signed headers take
the general path."""
_ALGORITHM = ALGORITHM.encode()
_NEEDED = {"host", "x-amz-date"}
_TARGET = b"x-amz-target"
_PAYLOAD = b"x-amz-content-sha256"


class SignedHead:
    """The head of an Authorization header, up to its signature. A client repeats it."""

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
        """Return the string to sign; None: the request takes the general path. `headers` has each
        sent header of READ once, its name in lower case and without spaces around its value."""
        if not self._is_common or (_TARGET in headers and not self._signs_target):
            return None
        payload = sha256(body).hexdigest().encode()
        if headers.get(_PAYLOAD, payload) != payload:
            return None
        try:
            canonical = self._canonical % (path, *self._values(headers), payload)
        except KeyError:
            return None
        # Repeated spaces in a value are signed as one.
        if b"  " in canonical or b"\t" in canonical:
            return None
        hashed = sha256(canonical).hexdigest().encode()
        return b"%b\n%b%b%b" % (_ALGORITHM, headers[b"x-amz-date"], self._scope, hashed)
