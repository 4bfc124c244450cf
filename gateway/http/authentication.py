"""Authentication: headers and parameters of a request -> Caller, with account and region.

Without verification there are two modes. ``none`` accepts all requests. ``presence`` (the default)
needs credentials without verifying them: any Authorization header, or a presigned query. An
incomplete signature is refused, because its account would be a guess: in a header in both modes, in
a query only in ``presence``. The account comes from the access key, by configuration or because the
key has 12 digits. A user name (Basic) or token (Bearer) of 12 digits is an account, too. The region
comes from the scope of the signature. Both have a default.

With ``sigv4``, all faces need a key of this gateway: one that signs, in a header or in the URL, or
a shown one. The account is that of the key, and the region that of the scope
(docs/contract/protocol.md 1.6). Refusals have the texts of AWS.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from hashlib import sha256
from hmac import compare_digest
from time import time
from typing import TYPE_CHECKING, NotRequired, Protocol, TypedDict, Unpack

from queuegate.gateway.faces.interface import CredentialRule, Request
from queuegate.gateway.operations.access.api_keys import PREFIX
from queuegate.gateway.operations.access.authorization import Effect, effect_of
from queuegate.gateway.operations.access.caller import Caller, Producer
from queuegate.gateway.operations.access.console_sessions import READS, placed
from queuegate.gateway.operations.access.key_cache import AccessKey, secret_mark
from queuegate.protocol import opaque_tokens, sigv4
from queuegate.protocol.malformed import Malformed
from queuegate.protocol.query_wire import LONG_FORM, parse_form
from queuegate.protocol.service_detection import SERVICES, named_service, scope_service
from queuegate.protocol.sigv4 import Credential, SignedHead, SignedRequest
from queuegate.storage.storage_errors import (
    AccessDenied,
    IncompleteSignature,
    InvalidSignature,
    RequestTooLarge,
    UnrecognizedClient,
)

if TYPE_CHECKING:
    from queuegate.gateway.operations.access.console_sessions import ConsoleSessions
    from queuegate.protocol.opaque_tokens import Session
    from queuegate.storage.model import Key


_TWELVE_DIGITS = re.compile(r"[0-9]{12}").fullmatch
_MOST = 10_000
_LONGEST_HEAD = 512
_HEX = b"0123456789abcdefABCDEF"
_SIGNATURE_DIGITS = 64
_NAME_DIGITS = 32

_Verify = Callable[[SignedRequest, Credential, str, str, datetime], sigv4.Verdict]
_ANY_SIGNATURE = "0" * 64
_SKEW_SECONDS = sigv4.CLOCK_SKEW.total_seconds()
_TOKEN = "x-amz-security-token"
_TOKEN_PARAMETER = "X-Amz-Security-Token"
_MISMATCH = (
    "The request signature we calculated does not match the signature you provided. Check your AWS "
    "Secret Access Key and signing method. Consult the service documentation for details."
)
_UNKNOWN = "The security token included in the request is invalid."
_ANY_SERVICE = ", ".join(f"'{name}'" for name in sorted(SERVICES))
_BARE_BODY = (
    "The signature does not cover the body (UNSIGNED-PAYLOAD), which this gateway takes over TLS "
    "alone: sign the body, or see QUEUEGATE_UNSIGNED_PAYLOAD."
)
_UNSIGNED = (
    "The header Authorization has no signature, and this gateway verifies them: sign with one of "
    "its access keys, or send Bearer and a key of `queuegate keys`, which its own APIs take, too."
)
_NO_TIME = "The request has no readable time of signing: X-Amz-Date or Date."


class KnownKeys(Protocol):
    """The valid keys (``key_cache.Keys``)."""

    def find(self, shown: str) -> tuple[Key, Producer] | None:
        """Return the shown key; None: unknown."""

    def find_access(self, access_key: str) -> AccessKey | None:
        """Return the access key of a signature; None: unknown."""

    def find_session(self, access_key: str, token: str) -> tuple[AccessKey, Session] | None:
        """Return the temporary access key and its session; None: unknown. Raise ExpiredToken."""


class _NoKeys:
    def find(self, _: str) -> None:
        return None

    def find_access(self, _: str) -> None:
        return None

    def find_session(self, _access_key: str, _token: str) -> None:
        return None


_NO_KEYS = _NoKeys()


class Authenticator:
    """Maps credentials to callers, with a cache: a client sends the same credentials repeatedly."""

    def __init__(
        self,
        *,
        mode: str,
        accounts: Mapping[str, str],
        account_id: str,
        region: str,
        api_key: str | None = None,
        keys: KnownKeys = _NO_KEYS,
    ) -> None:
        self._required = mode != "none"
        self.console: ConsoleSessions | None = None
        """The sessions of the console; None: cookies do not count."""
        self.notes_origins = False
        """True if callers carry their origin, which policies need."""
        self._accounts = dict(accounts)
        self._account_id = account_id
        self._region = region
        self._anonymous = Caller(account_id, region, account_id)
        # Without required credentials, no caller is refused for being anonymous.
        self._nobody = Caller(account_id, region, account_id, is_anonymous=self._required)
        self._key_digest = None if api_key is None else sha256(api_key.encode()).digest()
        self._keys = keys
        self._callers: dict[tuple[str, str], Caller] = {}
        self._by_name: dict[tuple[str, str], Caller] = {}
        self.by_head: dict[bytes, tuple[Caller, str | None]] = {}
        """Caller and service by an Authorization header without its signature. Only short headers
        are cached, to bound the memory."""

    def caller(
        self,
        request: Request,
        params: Mapping[str, str],
        resource: str = "",
        *,
        may_be_anonymous: bool = False,
        wants: CredentialRule = CredentialRule.CREDENTIALS,
    ) -> Caller:
        """Return the caller of a request, and store it there. Raise AccessDenied if needed
        credentials are absent, and IncompleteSignature if a signature is malformed
        (docs/contract/protocol.md 1.2)."""
        sent = request.headers
        if self.console is not None and "cookie" in sent:
            request.headers = self.console.authorized(
                request.method, request.path, sent, is_reading=_is_reading(request)
            )
        found = self._in_session(request, sent) or self._who(
            request, params, resource, may_be_anonymous=may_be_anonymous, wants=wants
        )
        if request.headers is not sent:
            found = placed(found, sent)
        if self.notes_origins:
            agent = request.headers.get("user-agent", "")
            found = replace(found, origin=request.origin, agent=agent)
        if request.is_cut:
            # An anonymous action, or a form with its credentials beyond the first 64 KiB.
            raise RequestTooLarge("Without credentials in its head a request must be shorter.")
        request.caller = found
        if request.reading is not None:
            request.reading.belong_to(found.account_id)
        return found

    def claimed(
        self,
        request: Request,
        params: Mapping[str, str],
        wants: CredentialRule = CredentialRule.CREDENTIALS,
    ) -> str | None:
        """Return the account that a head claims; None: it cannot authenticate."""
        sent = request.headers
        if self.console is not None and "cookie" in sent:
            # The operation may be unknown yet: `caller` decides if the session may ask for it.
            request.headers = self.console.authorized(
                request.method, request.path, sent, is_reading=True
            )
        try:
            found = self._in_session(request, sent) or self._who(
                request, params, "", may_be_anonymous=False, wants=wants, by_head=True
            )
            return found.account_id
        except (AccessDenied, IncompleteSignature, InvalidSignature, UnrecognizedClient):
            return None
        finally:
            request.headers = sent

    def _who(
        self,
        request: Request,
        params: Mapping[str, str],
        resource: str,
        *,
        may_be_anonymous: bool,
        wants: CredentialRule,
        by_head: bool = False,
    ) -> Caller:
        """Return the caller. With ``by_head``, verify nothing that needs the body."""
        authorization = request.headers.get("authorization", "")
        # AWS requests, as on the fast path, use only the signature.
        if wants is not CredentialRule.CREDENTIALS or not authorization.startswith(sigv4.ALGORITHM):
            shown = presented_key(request.headers, params if wants is CredentialRule.NAME else {})
            if shown.startswith(PREFIX):
                return self._of_key(shown)
            if wants is CredentialRule.KEY and not may_be_anonymous:
                self._check_key(shown)
            if wants is CredentialRule.NAME:
                return self._named(authorization, shown)
        if authorization:
            return self._by_header(authorization)
        if wants is CredentialRule.KEY:
            return self._anonymous
        return self._presigned(params, resource, may_be_anonymous)

    def _in_session(self, request: Request, sent: Mapping[str, str]) -> Caller | None:
        """Return the caller of a session with an access key; None: another key, or no session."""
        if request.headers is sent:
            return None
        shown = request.headers["authorization"].removeprefix("Bearer ")
        access_key, has_secret, secret = shown.partition(" ")
        if not has_secret:
            return None
        found = self._keys.find_access(access_key)
        if found is None or not any(compare_digest(secret, one) for one in found.secrets):
            raise UnrecognizedClient(_UNKNOWN)
        return _owner_of(found.key, found.producer, self._region, access_key)

    def _of_key(self, shown: str) -> Caller:
        found = self._keys.find(shown)
        if found is None:
            raise UnrecognizedClient()
        return _owner_of(*found, self._region)

    def _check_key(self, shown: str) -> None:
        if self._key_digest is not None and not self._is_key(shown):
            raise AccessDenied("This needs the key of the gateway.")

    def _is_key(self, shown: str) -> bool:
        digest = self._key_digest
        return digest is not None and compare_digest(_digest(shown), digest)

    def _named(self, authorization: str, shown: str) -> Caller:
        """Return the caller as a producer, which for signed requests is the access key."""
        caller = self._by_header(authorization)
        if authorization.startswith(sigv4.ALGORITHM):
            return _producing(caller, caller.access_key or shown)
        place = caller.account_id, shown
        named = self._by_name.get(place)
        if named is None:
            named = _producing(caller, shown)
            if len(shown) <= _LONGEST_HEAD:
                if len(self._by_name) >= _MOST:
                    self._by_name.clear()
                self._by_name[place] = named
        return named

    def _presigned(
        self, params: Mapping[str, str], resource: str, may_be_anonymous: bool
    ) -> Caller:
        try:
            claim = sigv4.claimed_by_query(params)
        except Malformed:
            if self._required:
                raise IncompleteSignature(INCOMPLETE) from None
            return self._anonymous
        if claim is None:
            if self._required and not may_be_anonymous:
                raise AccessDenied(f"Access to the resource {resource} is denied.")
            return self._nobody
        return self._known(*claim)

    def _by_header(self, authorization: str) -> Caller:
        if not authorization.startswith(sigv4.ALGORITHM):
            account_id = _account_named(authorization)
            return self._known(account_id, "") if account_id else self._anonymous
        try:
            try:
                claim = sigv4.parse_authorization(authorization)
            except Malformed:
                return self._known(*sigv4.claimed(authorization))
        except Malformed:
            raise IncompleteSignature(INCOMPLETE) from None
        return self._known(claim.access_key, claim.region)

    def _known(self, access_key: str, region: str) -> Caller:
        known = self._callers.get((access_key, region))
        if known is None:
            account_id = self.account_of(access_key)
            known = Caller(account_id, region or self._region, account_id, access_key=access_key)
            if len(self._callers) >= _MOST:
                self._callers.clear()
                self.by_head.clear()
            self._callers[(access_key, region)] = known
        return known

    def account_of(self, access_key: str) -> str:
        """Return the account of requests that an access key signs."""
        known = self._accounts.get(access_key) or opaque_tokens.account_of(access_key)
        return known or (access_key if _TWELVE_DIGITS(access_key) else self._account_id)

    reads: frozenset[bytes] = frozenset()

    def fast_caller(
        self, headers: Mapping[bytes, bytes], service: str, _path: bytes, _body: bytes
    ) -> Caller | None:
        """Return the caller by the bytes of the header, for the fast path; None: use the ordinary
        path, also for a signature with the scope of another service."""
        authorization = headers.get(b"authorization", b"")
        head, _, signature = authorization.rpartition(b"Signature=")
        if len(signature) != _SIGNATURE_DIGITS or signature.translate(None, _HEX):
            return None
        known = self.by_head.get(head)
        if known is None:
            text = authorization.decode("latin-1")
            if not text.startswith(sigv4.ALGORITHM):
                return None
            try:
                known = self._by_header(text), scope_service(text)
            except IncompleteSignature:
                return None
            if len(head) <= _LONGEST_HEAD:
                if len(self.by_head) >= _MOST:
                    self.by_head.clear()
                self.by_head[head] = known
        caller, signed_for = known
        return caller if signed_for == service else None


def _is_reading(request: Request) -> bool:
    """Return True if the operation changes nothing. Reads of STS return credentials, which may."""
    asked = request.asked
    if asked is None:
        return request.method in READS
    effect = asked.effect or effect_of(asked.right)
    return effect is Effect.READING and not asked.right.startswith("sts:")


def _account_named(authorization: str) -> str:
    """Return the account that a user name or a token of 12 digits names; empty: none."""
    scheme, _, text = authorization.partition(" ")
    if scheme.lower() == "basic":
        try:
            text = base64.b64decode(text.strip(), validate=True).partition(b":")[0].decode("ascii")
        except ValueError:
            return ""
    elif scheme.lower() != "bearer":
        return ""
    return text.strip() if _TWELVE_DIGITS(text.strip()) else ""


INCOMPLETE = (
    "The credentials begin like a signature and cannot be read as one: it needs Credential with "
    "its scope, SignedHeaders and Signature; in a query X-Amz-Algorithm, X-Amz-Credential, "
    "X-Amz-Date, X-Amz-Expires, X-Amz-SignedHeaders and X-Amz-Signature."
)


def presented_key(headers: Mapping[str, str], params: Mapping[str, str]) -> str:
    """Return the key that a client shows: the first with the prefix of Queuegate's keys, else the
    first present."""
    authorization = headers.get("authorization", "")
    scheme, _, token = authorization.partition(" ")
    if scheme.lower() == "bearer":
        authorization = token.strip()
    found = [headers.get("x-api-key", ""), headers.get("api-key", ""), authorization]
    if params:
        # Decode the parameter as a header would be, so that digests are equal.
        found.append(params.get("api_key", "").encode("utf-8", "replace").decode("latin-1"))
    first = ""
    for text in found:
        if text.startswith(PREFIX):
            return text
        first = first or text
    return first


def _producing(caller: Caller, name: str) -> Caller:
    """Return the caller as the producer of a name. The name is stored only as a digest."""
    return replace(caller, producer=Producer(f"#{_digest(name).hex()[:_NAME_DIGITS]}"))


def _digest(shown: str) -> bytes:
    """Return the digest of a header's bytes, for a comparison in constant time."""
    return sha256(shown.encode("latin-1")).digest()


class CommonOptions(TypedDict):
    """Options of every authenticator."""

    account_id: str
    region: str
    api_key: NotRequired[str | None]
    keys: NotRequired[KnownKeys]


class VerifyingAuthenticator(Authenticator):
    """Authenticates callers by valid keys."""

    def __init__(
        self,
        *,
        takes_session_tokens: bool = False,
        unsigned_needs_tls: bool = False,
        **common: Unpack[CommonOptions],
    ) -> None:
        super().__init__(mode="sigv4", accounts={}, **common)
        self._takes_tokens = takes_session_tokens
        self._unsigned_needs_tls = unsigned_needs_tls
        self._heads: dict[bytes, SignedHead] = {}
        self._last_date = b"", "", 0.0
        """The last signing time on the fast path: header, day, and seconds since the epoch."""
        self._verified: dict[tuple[str, str], tuple[Key, Caller]] = {}

    def _who(
        self,
        request: Request,
        params: Mapping[str, str],
        resource: str,
        *,
        may_be_anonymous: bool,
        wants: CredentialRule,
        by_head: bool = False,
    ) -> Caller:
        """Return the caller. Raise InvalidSignature, too, for a wrong or expired signature."""
        authorization = request.headers.get("authorization", "")
        is_signed = authorization.startswith(sigv4.ALGORITHM)
        if wants is not CredentialRule.CREDENTIALS or not is_signed:
            shown = presented_key(request.headers, params if wants is CredentialRule.NAME else {})
            if shown.startswith(PREFIX):
                return self._of_key(shown)
            if wants is CredentialRule.KEY and self._is_key(shown):
                return self._anonymous
        verify = _judge_head if by_head else sigv4.verify
        try:
            if is_signed:
                credential = sigv4.parse_authorization(authorization)
                return self._of_signature(request, credential, None, verify)
            if b"X-Amz-Signature=" in request.query:
                query = parse_form(request.query)
                presigned = sigv4.parse_presigned(query)
                if presigned is not None:
                    return self._of_signature(request, presigned, query, verify)
        except Malformed:
            raise IncompleteSignature(INCOMPLETE) from None
        if may_be_anonymous:
            return self._nobody
        if authorization:
            raise IncompleteSignature(_UNSIGNED)
        raise AccessDenied(f"Access to the resource {resource} is denied.")

    def _check(self, request: Request, credential: Credential, headers: Mapping[str, str]) -> None:
        """Raise InvalidSignature for the scope of another service, and for an unsigned body without
        TLS, where that needs TLS."""
        service = _service_asked(request)
        is_known = service in SERVICES
        if credential.service != service and (is_known or credential.service not in SERVICES):
            correct = f"'{service}'" if is_known else _ANY_SERVICE
            raise InvalidSignature(f"Credential should be scoped to correct service: {correct}.")
        is_bare = headers.get("x-amz-content-sha256") == sigv4.UNSIGNED_PAYLOAD
        if is_bare and self._unsigned_needs_tls and request.origin.scheme != "https":
            raise InvalidSignature(_BARE_BODY)

    def _key(self, credential: Credential, token: str) -> tuple[AccessKey, Session | None]:
        key, session = self._keys.find_access(credential.access_key), None
        if key is None and token:
            key, session = self._keys.find_session(credential.access_key, token) or (None, None)
        # A permanent key has no session token.
        if key is None or (token and session is None and not self._takes_tokens):
            raise UnrecognizedClient(_UNKNOWN)
        return key, session

    def _of_signature(
        self,
        request: Request,
        credential: Credential,
        query: Mapping[str, str] | None,
        verify: _Verify,
    ) -> Caller:
        """Return the caller of a signed request; ``query`` None: the signature is in a header."""
        headers = _joined(request)
        if query is not None:
            timestamp = sigv4.request_timestamp({}, query)
            token = query.get(_TOKEN_PARAMETER, "")
        else:
            try:
                timestamp = sigv4.request_timestamp(headers, {})
            except Malformed:
                raise IncompleteSignature(_NO_TIME) from None
            is_covered = _TOKEN in credential.signed_headers.split(";")
            token = headers.get(_TOKEN, "") if is_covered else ""
        self._check(request, credential, headers)
        key, session = self._key(credential, token)
        path, url_query = request.raw_path or request.path, request.query.decode("latin-1")
        signed = SignedRequest(request.method, path, url_query, headers, request.body)
        now = datetime.now(UTC)
        verdicts = {verify(signed, credential, one, timestamp, now): one for one in key.secrets}
        if "valid" not in verdicts:
            raise InvalidSignature(
                _skew(credential, timestamp, now) if "skewed" in verdicts else _MISMATCH
            )
        caller = self._owner(key, credential.region)
        if session is not None:
            return _in_session(caller, session, credential.access_key)
        if credential.service == "sts":
            return replace(caller, secret_mark=secret_mark(verdicts["valid"]))
        return caller

    def account_of(self, access_key: str) -> str:
        """Return the account of a known or temporary key; for others the account without
        verification."""
        key = self._keys.find_access(access_key)
        return super().account_of(access_key) if key is None else key.key.account_id

    def _owner(self, key: AccessKey, region: str) -> Caller:
        access_key = key.key.access_key or ""
        known = self._verified.get((access_key, region))
        if known is not None and known[0] is key.key:
            return known[1]
        caller = _owner_of(key.key, key.producer, region, access_key)
        if len(self._verified) >= _MOST:
            self._verified.clear()
        self._verified[(access_key, region)] = key.key, caller
        return caller

    reads = sigv4.READ

    def fast_caller(
        self, headers: Mapping[bytes, bytes], service: str, path: bytes, body: bytes
    ) -> Caller | None:
        """Return the caller of a valid signature by a key without a rate limit; None: use the
        ordinary path, where ``caller`` gives the reason."""
        head, _, signature = headers.get(b"authorization", b"").rpartition(b"Signature=")
        known = self._heads.get(head)
        signed = known or self._read_head(head)
        if signed is None:
            return None
        credential = signed.credential
        key = self._keys.find_access(credential.access_key)
        if key is None or key.key.limit is not None or credential.service != service:
            return None
        to_sign = signed.string_to_sign(path, headers, body)
        if to_sign is None or not self._is_present(headers[b"x-amz-date"], credential.date):
            return None
        for secret in key.secrets:
            mac = sigv4.signing_mac(
                secret, credential.date, credential.region, credential.service
            ).copy()
            mac.update(to_sign)
            if compare_digest(mac.hexdigest().encode(), signature):
                if known is None:
                    self._keep_head(head, signed)
                return self._owner(key, credential.region)
        return None

    def _read_head(self, head: bytes) -> SignedHead | None:
        try:
            text = f"{head.decode('ascii')}Signature={_ANY_SIGNATURE}"
            signed = SignedHead(sigv4.parse_authorization(text))
        except (Malformed, UnicodeDecodeError):
            return None
        names = signed.credential.signed_headers.split(";")
        return None if _TOKEN in names and not self._takes_tokens else signed

    def _keep_head(self, head: bytes, signed: SignedHead) -> None:
        """Cache the head of a valid signature. Unverified heads must not fill the cache."""
        if len(self._heads) >= _MOST:
            self._heads.clear()
        self._heads[head] = signed

    def _is_present(self, date: bytes, day: str) -> bool:
        """Return True if the signing time is current, and on the day in the scope."""
        if date != self._last_date[0]:
            text = date.decode("latin-1")
            try:
                at = datetime.fromisoformat(sigv4.request_timestamp({"x-amz-date": text}, {}))
            except (Malformed, ValueError):
                return False
            self._last_date = date, text[:8], at.timestamp()
        _, last_day, seconds = self._last_date
        return last_day == day and abs(time() - seconds) <= _SKEW_SECONDS


def _owner_of(key: Key, producer: Producer, region: str, access_key: str = "") -> Caller:
    return Caller(
        key.account_id,
        region,
        key.account_id,
        access_key=access_key,
        producer=producer,
        is_administrator=key.is_administrator,
    )


def _in_session(owner: Caller, session: Session, access_key: str) -> Caller:
    """Return the caller in a session that the owner of a key began."""
    if not session.role:
        return replace(owner, session=session)
    return replace(
        owner,
        account_id=session.account_id,
        principal=session.user_id,
        access_key=access_key,
        role_arn=session.role_arn,
        is_administrator=False,
        session=session,
    )


def _service_asked(request: Request) -> str:
    """Return the AWS service of a request, or the name of its face; empty: a page."""
    if request.asked is None:
        return ""
    service, _, action = request.asked.operation.partition(":")
    if service in SERVICES and action not in SERVICES[service].actions:
        # The scope chose a service without this action: another service may have it.
        body = request.body if len(request.body) <= LONG_FORM else b""
        path = request.path
        return named_service(request.method, path, request.query, request.headers, body) or service
    return service


def _judge_head(
    _: SignedRequest, credential: Credential, _secret: str, timestamp: str, now: datetime
) -> sigv4.Verdict:
    """Return the verdict of ``sigv4.verify``, without checking the signature."""
    return "valid" if sigv4.is_in_time(credential, timestamp, now) else "skewed"


def _joined(request: Request) -> Mapping[str, str]:
    """Return the headers, with repeated ones joined as in a signature."""
    if len(request.raw_headers) <= len(request.headers):
        return request.headers
    found: dict[str, list[str]] = {}
    for name, value in request.raw_headers:
        found.setdefault(name.decode("latin-1"), []).append(value.decode("latin-1").strip())
    return {name: ",".join(values) for name, values in found.items()}


def _skew(credential: Credential, timestamp: str, now: datetime) -> str:
    if timestamp[:8] != credential.date:
        return (
            "Date in Credential scope does not match YYYYMMDD from ISO-8601 version of date from "
            f"HTTP: '{credential.date}' != '{timestamp[:8]}', from '{timestamp}'."
        )
    at = f"{now:%Y%m%dT%H%M%SZ}"
    if timestamp > at:
        edge = f"{now + sigv4.CLOCK_SKEW:%Y%m%dT%H%M%SZ} ({at} + 15 min.)"
        return f"Signature not yet current: {timestamp} is still later than {edge}"
    if credential.expires_seconds is not None:
        return f"Signature expired: {timestamp} + {credential.expires_seconds} s is before {at}"
    edge = f"{now - sigv4.CLOCK_SKEW:%Y%m%dT%H%M%SZ} ({at} - 15 min.)"
    return f"Signature expired: {timestamp} is now earlier than {edge}"
