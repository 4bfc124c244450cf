"""Connections: where SQS and SNS are, and who calls them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class StaticCredentials:
    """Keys given by hand. Only the access key id, which is no secret, is in its repr."""

    access_key_id: str
    secret_access_key: str = field(repr=False)
    session_token: str | None = field(default=None, repr=False)


class Connection(NamedTuple):
    """The endpoint of a service, and the caller. Picklable.

    ``endpoint_url`` is for both services; None: AWS_ENDPOINT_URL_SQS and _SNS, AWS_ENDPOINT_URL,
    the profile's, then AWS. ``max_retries``: retries of a call after transient failures.
    """

    endpoint_url: str | None = None
    region: str | None = None
    profile: str | None = None
    role_arn: str | None = None
    role_session_name: str | None = None
    static: StaticCredentials | None = None
    kind: str = "auto"
    max_retries: int = 8
