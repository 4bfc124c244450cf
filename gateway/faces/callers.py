"""Who makes a request: what faces and the fast path ask the authenticator."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from typing import Protocol

from queuegate.gateway.faces.requests import Request
from queuegate.gateway.operations.access.caller import Caller


class Wants(Enum):
    """What a face wants of those who ask it.

    A key comes in X-Api-Key, api-key, Authorization: Bearer, or the parameter ``api_key`` where a
    face hands that on, for browsers, whose EventSource sends no headers. One that looks like ours
    must be ours, on every face: its account is theirs.
    """

    CREDENTIALS = auto()
    """What QUEUEGATE_AUTH says: as AWS, with a signature or anything in its place."""
    KEY = auto()
    """QUEUEGATE_API_KEY, where it is set, or a key of ours. Otherwise nothing."""
    NAME = auto()
    """Nothing. Whatever is shown names the producer, whose rate may be limited."""


class Callers(Protocol):
    """Who makes a request, from its credentials (``gateway.http.auth.Authenticator``).

    Either way has what a signature covers: method, path and query as they came, all headers, and
    the body.
    """

    def caller(
        self,
        request: Request,
        params: Mapping[str, str],
        resource: str = "",
        *,
        may_be_anonymous: bool = False,
        wants: Wants = Wants.CREDENTIALS,
    ) -> Caller:
        """The caller of a request that was read to its end, or of a page's before its body.

        ``params`` are where a presigned request has its credentials: its query, with its form where
        there is one. Raises AccessDenied when credentials are needed and absent or not the ones
        that are wanted, with the name of the resource, UnrecognizedClient for a key that is none of
        ours, and IncompleteSignature for what cannot be read.
        """

    def claimed(
        self, request: Request, params: Mapping[str, str], wants: Wants = Wants.CREDENTIALS
    ) -> str | None:
        """Return the account that a head claims, whose request was not read: nothing is verified
        that needs the body. None: ``caller`` refuses it, whatever the body is."""

    @property
    def reads(self) -> frozenset[bytes]:
        """Headers that ``fast_caller`` looks at, beside those that the fast path reads anyway."""

    def fast_caller(
        self, headers: Mapping[bytes, bytes], service: str, path: bytes, body: bytes
    ) -> Caller | None:
        """The caller on the fast path; None: take the long way, where ``caller`` decides.

        ``headers`` has those that were read, each once and without blanks around its value.
        """
