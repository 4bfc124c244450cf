"""Authentication with verified signatures (QUEUEGATE_AUTH=sigv4): headers, parameters -> Caller.

All faces then need a key of this gateway: one that signs, in a header or in the URL, or a shown
one. The account is that of the key, and the region that of the scope (docs/contract/protocol.md
1.6). Refusals have the texts of AWS.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from hmac import compare_digest
from time import time
from typing import TYPE_CHECKING

from queuegate.gateway.faces.interface import CredentialRule, Request
from queuegate.gateway.http.auth import INCOMPLETE, Authenticator, KnownKeys, shown_key
from queuegate.gateway.operations.access.api_keys import PREFIX
from queuegate.gateway.operations.access.caller import Caller
from queuegate.gateway.operations.access.key_cache import AccessKey
from queuegate.gateway.operations.access.key_secrets import secret_mark
from queuegate.protocol import sigv4
from queuegate.protocol.malformed import Malformed
from queuegate.protocol.query_wire import LONG_FORM, parse_form
from queuegate.protocol.service_detection import SERVICES, named_service
from queuegate.protocol.sigv4 import Credential, SignedHead, SignedRequest
from queuegate.storage.storage_errors import (
    AccessDenied,
    IncompleteSignature,
    InvalidSignature,
    UnrecognizedClient,
)

if TYPE_CHECKING:
    from queuegate.protocol.session_tokens import Session
    from queuegate.storage.model import Key

_Found = tuple[AccessKey, "Session | None"]
_Verify = Callable[[SignedRequest, Credential, str, str, datetime], sigv4.Verdict]
_MOST = 10_000
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


class VerifyingAuthenticator(Authenticator):
    """Authenticates callers by valid keys."""

    def __init__(
        self,
        *,
        account_id: str,
        region: str,
        api_key: str | None,
        keys: KnownKeys,
        takes_session_tokens: bool = False,
        unsigned_needs_tls: bool = False,
    ) -> None:
        super().__init__(
            mode="sigv4",
            accounts={},
            account_id=account_id,
            region=region,
            api_key=api_key,
            keys=keys,
        )
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
            shown = shown_key(request.headers, params if wants is CredentialRule.NAME else {})
            if shown.startswith(PREFIX):
                return self._of_key(shown)
            if wants is CredentialRule.KEY and self._is_key(shown):
                return self._anonymous
        verify = _judge_head if by_head else sigv4.verify
        try:
            if is_signed:
                return self._of_header(request, sigv4.parse_authorization(authorization), verify)
            if b"X-Amz-Signature=" in request.query:
                query = parse_form(request.query)
                credential = sigv4.parse_presigned(query)
                if credential is not None:
                    return self._of_url(request, credential, query, verify)
        except Malformed:
            raise IncompleteSignature(INCOMPLETE) from None
        if may_be_anonymous:
            return self._nobody
        if authorization:
            raise IncompleteSignature(_UNSIGNED)
        raise AccessDenied(f"Access to the resource {resource} is denied.")

    def _of_header(self, request: Request, credential: Credential, verify: _Verify) -> Caller:
        headers = _joined(request)
        is_signed = _TOKEN in credential.signed_headers.split(";")
        try:
            timestamp = sigv4.request_timestamp(headers, {})
        except Malformed:
            raise IncompleteSignature(_NO_TIME) from None
        self._check(request, credential, headers)
        key = self._key(credential, headers.get(_TOKEN, "") if is_signed else "")
        return self._of_signature(_signed(request, headers), credential, timestamp, key, verify)

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

    def _of_url(
        self,
        request: Request,
        credential: Credential,
        query: Mapping[str, str],
        verify: _Verify,
    ) -> Caller:
        timestamp = sigv4.request_timestamp({}, query)
        headers = _joined(request)
        self._check(request, credential, headers)
        key = self._key(credential, query.get(_TOKEN_PARAMETER, ""))
        return self._of_signature(_signed(request, headers), credential, timestamp, key, verify)

    def _key(self, credential: Credential, token: str) -> _Found:
        key, session = self._keys.find_access(credential.access_key), None
        if key is None and token:
            key, session = self._keys.find_session(credential.access_key, token) or (None, None)
        # A permanent key has no session token.
        if key is None or (token and session is None and not self._takes_tokens):
            raise UnrecognizedClient(_UNKNOWN)
        return key, session

    def _of_signature(
        self,
        signed: SignedRequest,
        credential: Credential,
        timestamp: str,
        found: _Found,
        verify: _Verify,
    ) -> Caller:
        now = datetime.now(UTC)
        key, session = found
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
        caller = Caller(
            key.key.account_id,
            region,
            key.key.account_id,
            access_key=access_key,
            producer=key.producer,
            is_administrator=key.key.is_administrator,
        )
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


def _signed(request: Request, headers: Mapping[str, str]) -> SignedRequest:
    path = request.raw_path or request.path
    query = request.query.decode("latin-1")
    return SignedRequest(request.method, path, query, headers, request.body)


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
