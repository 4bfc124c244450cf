"""Who makes a request: what faces and the fast path ask the authenticator."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from gateway.faces.requests import Request
from gateway.operations.caller import Caller


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
    ) -> Caller:
        """The caller of a request that was read to its end, or of a page's before its body.

        ``params`` are where a presigned request has its credentials: its query, with its form where
        there is one. Raises AccessDenied when credentials are needed and absent, with the name of
        the resource, and IncompleteSignature for those that cannot be read.
        """

    def fast_caller(
        self, authorization: bytes, service: str, data: bytes, end: int
    ) -> Caller | None:
        """The caller on the fast path; None: take the long way, where ``caller`` decides.

        ``data`` is the whole request, ``end`` where its head ends. Nothing of it was copied or
        taken apart for this: ``RequestHeads.parse`` does that to a head for whoever needs more
        than the credentials.
        """
