"""Authentication without verification: headers and parameters -> Caller, with account and region.

``verified.py`` verifies signatures. Without verification there are two modes. ``none`` accepts all
requests. ``presence`` (the default) needs credentials without verifying them: any Authorization
header, or a presigned query. An incomplete signature is refused, because its account would be a
guess: in a header in both modes, in a query only in ``presence``.
The account comes from the access key, by configuration or because the key has 12 digits. A user
name (Basic) or token (Bearer) of 12 digits is an account, too. The region comes from the scope of
the signature. Both have a default.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from dataclasses import replace
from hashlib import sha256
from hmac import compare_digest
from typing import TYPE_CHECKING, Protocol

from queuegate.gateway.faces.interface import CredentialRule, Request
from queuegate.gateway.operations.access.api_keys import PREFIX
from queuegate.gateway.operations.access.caller import Caller, Producer
from queuegate.protocol import session_tokens, sigv4
from queuegate.protocol.malformed import Malformed
from queuegate.protocol.service_detection import scope_service
from queuegate.storage.storage_errors import (
    AccessDenied,
    IncompleteSignature,
    InvalidSignature,
    RequestTooLarge,
    UnrecognizedClient,
)

if TYPE_CHECKING:
    from queuegate.gateway.operations.access.key_cache import AccessKey
    from queuegate.protocol.session_tokens import Session
    from queuegate.storage.model import Key

_TWELVE_DIGITS = re.compile(r"[0-9]{12}").fullmatch
_MOST = 10_000
_LONGEST_HEAD = 512
_HEX = b"0123456789abcdefABCDEF"
_SIGNATURE_DIGITS = 64
_NAME_DIGITS = 32


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
        found = self._who(request, params, resource, may_be_anonymous=may_be_anonymous, wants=wants)
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
        try:
            return self._who(
                request, params, "", may_be_anonymous=False, wants=wants, by_head=True
            ).account_id
        except (AccessDenied, IncompleteSignature, InvalidSignature, UnrecognizedClient):
            return None

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
            shown = shown_key(request.headers, params if wants is CredentialRule.NAME else {})
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

    def _of_key(self, shown: str) -> Caller:
        found = self._keys.find(shown)
        if found is None:
            raise UnrecognizedClient()
        key, producer = found
        return Caller(
            key.account_id,
            self._region,
            key.account_id,
            producer=producer,
            is_administrator=key.is_administrator,
        )

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
        known = self._accounts.get(access_key) or session_tokens.account_of(access_key)
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


def shown_key(headers: Mapping[str, str], params: Mapping[str, str]) -> str:
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
