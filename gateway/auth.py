"""Headers and parameters -> Caller: who asks, in which account and region.

Two settings: ``none`` takes everybody, ``presence`` (the default) wants credentials to be there.
Neither looks at the signature. The account comes from the access key, by configuration or because
it has 12 digits; the region comes from the scope of the signature. Either has a default.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from gateway.operations.caller import Caller
from protocol import sigv4
from protocol.errors import Malformed
from storage.errors import AccessDenied

_TWELVE_DIGITS = re.compile(r"[0-9]{12}").fullmatch
_MOST = 10_000
_LONGEST_HEAD = 512


class Authenticator:
    """Turns credentials into callers and remembers them: one client sends the same ones all day."""

    def __init__(
        self, *, mode: str, accounts: Mapping[str, str], account_id: str, region: str
    ) -> None:
        self._required = mode != "none"
        self._accounts = dict(accounts)
        self._account_id = account_id
        self._region = region
        self._anonymous = Caller(account_id, region, account_id)
        # Where nobody needs credentials, nobody is refused for having none.
        self._nobody = Caller(account_id, region, account_id, is_anonymous=self._required)
        self._callers: dict[tuple[str, str], Caller] = {}
        self.by_head: dict[bytes, Caller] = {}
        """Caller by the first part of an Authorization header, up to its signed headers. Only short
        ones that name a caller: whatever else clients think of is not worth remembering."""

    def caller(
        self,
        authorization: str,
        params: Mapping[str, str],
        resource: str = "",
        *,
        may_be_anonymous: bool = False,
    ) -> Caller:
        """The caller of a request; AccessDenied when credentials are needed and absent."""
        try:
            credential = (
                sigv4.parse_authorization(authorization)
                if authorization
                else sigv4.parse_presigned(params)
            )
        except Malformed:
            # Any value will do where signatures are not verified; a name in it counts.
            claim = sigv4.claimed(authorization)
            return self._anonymous if claim is None else self._known(*claim)
        if credential is None:
            if self._required and not may_be_anonymous:
                raise AccessDenied(f"Access to the resource {resource} is denied.")
            return self._nobody
        return self._known(credential.access_key, credential.region)

    def _known(self, access_key: str, region: str) -> Caller:
        known = self._callers.get((access_key, region))
        if known is None:
            account_id = self._accounts.get(access_key)
            if account_id is None:
                account_id = access_key if _TWELVE_DIGITS(access_key) else self._account_id
            known = Caller(account_id, region or self._region, account_id)
            if len(self._callers) >= _MOST:
                self._callers.clear()
                self.by_head.clear()
            self._callers[(access_key, region)] = known
        return known

    def fast_caller(self, authorization: bytes) -> Caller | None:
        """The caller by the bytes of the header, for the fast path; None: take the long way."""
        head, found, _ = authorization.partition(b", SignedHeaders=")
        if not found:
            return None
        caller = self.by_head.get(head)
        if caller is None:
            try:
                caller = self.caller(authorization.decode("latin-1"), {})
            except AccessDenied:
                return None
            if caller is not self._anonymous and len(head) <= _LONGEST_HEAD:
                if len(self.by_head) >= _MOST:
                    self.by_head.clear()
                self.by_head[head] = caller
        return caller
