"""Who makes a request: what every face asks the authenticator."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from gateway.operations.caller import Caller


class Callers(Protocol):
    """Who makes a request, from its credentials (``gateway.http.auth.Authenticator``)."""

    def caller(
        self,
        authorization: str,
        params: Mapping[str, str],
        resource: str = "",
        *,
        may_be_anonymous: bool = False,
    ) -> Caller: ...
