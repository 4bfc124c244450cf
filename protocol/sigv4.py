"""AWS Signature Version 4: who a request claims to be from, and whether the signature proves it
(docs/contract/protocol.md 1.6)."""

import hmac
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from email.utils import parsedate_to_datetime
from functools import lru_cache
from hashlib import sha256
from typing import Final, Literal, NamedTuple
from urllib.parse import quote, unquote_to_bytes

from queuegate.protocol.errors import Malformed

Verdict = Literal["valid", "skewed", "mismatch"]

ALGORITHM: Final = "AWS4-HMAC-SHA256"
CLOCK_SKEW: Final = timedelta(minutes=15)
LONGEST_EXPIRY_SECONDS: Final = 604_800
UNSIGNED_PAYLOAD: Final = "UNSIGNED-PAYLOAD"
"""What a client has where the hash of a body would be, if its signature does not cover that."""

_ACCESS_KEY = re.compile(r"[!-~]{1,128}")
_REGION = re.compile(r"[a-z0-9-]{1,64}")
_DATE = re.compile(r"[0-9]{8}")
_SIGNATURE = re.compile(r"[0-9a-fA-F]{64}")
_BASIC_TIME = re.compile(r"[0-9]{8}T[0-9]{6}Z")
_EXPIRES = re.compile(r"[0-9]{1,6}")
_SPACES = re.compile(r"[ \t]+")
_LONGEST_HEAD = 2048
_PRESIGNED = (
    "X-Amz-Algorithm",
    "X-Amz-Credential",
    "X-Amz-Date",
    "X-Amz-Expires",
    "X-Amz-SignedHeaders",
    "X-Amz-Signature",
)


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
    """What a signature covers. Path and query as they came over the wire, still encoded; header
    names lower case.
    """

    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    body: bytes


def parse_authorization(header: str) -> Credential:
    """The claim in an Authorization header. Raises Malformed."""
    head, found, signature = header.rpartition("Signature=")
    if not found or len(head) > _LONGEST_HEAD or _SIGNATURE.fullmatch(signature) is None:
        raise _malformed()
    # One client sends the same head all day.
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
    """SignedHeaders. No name is there twice: each time would add the value to what is signed, and
    a request of 64 KB could ask for gigabytes to be hashed."""
    names = text.split(";")
    if not text or len({*names}) != len(names):
        raise _malformed()
    return text


def _scope_of(text: str) -> tuple[str, str, str, str]:
    """Access key, date, region and service. Key and region become parts of ARNs."""
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
    """Return access key and region of an Authorization header that nobody verifies.

    Any text is a signature. Raises Malformed without the scope of a Credential, SignedHeaders or
    Signature (docs/contract/protocol.md 1.2).
    """
    _, _, rest = header.strip().partition(" ")
    fields = dict(_field(part) for part in rest.split(",") if part.strip())
    if not fields.get("SignedHeaders") or not fields.get("Signature"):
        raise _malformed()
    access_key, _, region, _ = _scope_of(fields.get("Credential", ""))
    return access_key, region


def claimed_by_query(params: Mapping[str, str]) -> tuple[str, str] | None:
    """The same of the parameters of a URL; None: it has no signature."""
    if "X-Amz-Signature" not in params:
        return None
    if not all(params.get(name) for name in _PRESIGNED):
        raise _malformed()
    access_key, _, region, _ = _scope_of(params["X-Amz-Credential"])
    return access_key, region


def parse_presigned(params: Mapping[str, str]) -> Credential | None:
    """The claim in the parameters of a URL, or None if it has none. Raises Malformed.

    X-Amz-Signature makes a query presigned: the other five must be there then and be readable.
    """
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
    """Whether the holder of `secret_key` signed this request, and signed it about now.

    `timestamp` comes from `request_timestamp`. The time is judged first, as a replay needs no
    signature check. Where X-Amz-Target names the action it must be signed: a proxy's headers need
    not be.
    """
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
    """Whether the body is the one whose hash the request names, if it names one."""
    named = request.headers.get("x-amz-content-sha256")
    if named is None or named == UNSIGNED_PAYLOAD:
        return True
    return hmac.compare_digest(sha256(request.body).hexdigest().encode(), named.encode())


def request_timestamp(headers: Mapping[str, str], params: Mapping[str, str]) -> str:
    """The time of signing as ISO basic text: X-Amz-Date of the header or the URL, else Date.
    Raises Malformed.
    """
    text = headers.get("x-amz-date") or params.get("X-Amz-Date") or headers.get("date", "")
    if _BASIC_TIME.fullmatch(text):
        return text
    try:
        instant = parsedate_to_datetime(text)
    except ValueError:
        raise _malformed() from None
    return f"{instant:%Y%m%dT%H%M%SZ}"


def is_in_time(credential: Credential, timestamp: str, now: datetime) -> bool:
    """Return whether something was signed about now, on the day that its scope names."""
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
    """A signed header that is missing counts as empty, so that the signature does not match."""
    lines = [
        request.method,
        _canonical_path(request.path),
        _canonical_query(request.query),
    ]
    for name in credential.signed_headers.split(";"):
        value = _SPACES.sub(" ", request.headers.get(name, "").strip(" \t"))
        lines.append(f"{name}:{value}")
    payload = request.headers.get("x-amz-content-sha256") or sha256(request.body).hexdigest()
    lines += ["", credential.signed_headers, payload]
    return "\n".join(lines)


def _canonical_path(path: str) -> str:
    """Dot segments removed, and every segment encoded again: the client encoded it once already
    (only S3 does not).
    """
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
    # Headers are latin-1 in Python, each character a byte as it came.
    hashed = sha256(canonical.encode("latin-1", "replace")).hexdigest()
    return f"{ALGORITHM}\n{timestamp}\n{scope}\n{hashed}"


@lru_cache(maxsize=4096)
def signing_key(secret_key: str, date: str, region: str, service: str) -> bytes:
    """The key of one day, region and service; remembered, as four digests make it."""
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
    """What signs with that key; whoever signs takes a copy, which costs a fifth of a new one."""
    return hmac.new(signing_key(secret_key, date, region, service), digestmod="sha256")


def _malformed() -> Malformed:
    return Malformed("The signature of the request cannot be read.", kind="signature")
