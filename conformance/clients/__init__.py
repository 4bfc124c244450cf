"""The clients that take part, one module each (README.md says how to add one)."""

from __future__ import annotations

from conformance.clients import (
    aws_cli,
    boto3_current,
    boto3_query,
    sdk_go,
    sdk_java,
    sdk_javascript,
    sdk_rust,
)
from conformance.environments import Participant

ALL: tuple[Participant, ...] = (
    boto3_current.PARTICIPANT,
    boto3_query.PARTICIPANT,
    aws_cli.PARTICIPANT,
    sdk_go.PARTICIPANT,
    sdk_java.PARTICIPANT,
    sdk_javascript.PARTICIPANT,
)
# A client that takes minutes to compile runs only where --client names it.
NAMED: tuple[Participant, ...] = (sdk_rust.PARTICIPANT,)
