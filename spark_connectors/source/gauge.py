"""What a queue says of itself when a batch is planned, for the progress of a query."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from spark_connectors.errors import ConnectorError
from spark_connectors.transport.aws import Connection, Transport, open_service
from spark_connectors.transport.aws.wire import QueueFigures
from spark_connectors.transport.http import json_text
from spark_connectors.transport.http.answers import OK
from spark_connectors.transport.http.retries import Passing

_AGE_SECONDS = 5.0


class Gauge:
    """Counts of one queue, and the age of its oldest message where the endpoint has that.

    Queuegate has it at ``GET /v1/queues/{name}``; AWS only in CloudWatch.
    """

    def __init__(self, transport: Transport, url: str, connection: Connection, name: str) -> None:
        self._transport = transport
        self._url = url
        self._service = open_service(connection)
        self._path = f"/v1/queues/{quote(name, safe='')}"
        self._found: QueueFigures | None = None

    def figures(self) -> QueueFigures:
        """The counts as they are now. Raises Refused, NotNow."""
        self._found = None
        self._found = self._transport.figures(self._url)
        return self._found

    def shown(self) -> dict[str, Any]:
        """The counts that a batch was planned by, otherwise as they are now, and the age; None what
        nobody says."""
        try:
            found = self._found or self.figures()
        except ConnectorError:
            return dict.fromkeys(("visible", "notVisible", "delayed", "oldestAgeSeconds"))
        self._found = None
        return {
            "visible": found.visible,
            "notVisible": found.in_flight,
            "delayed": found.delayed,
            "oldestAgeSeconds": self._oldest_age_seconds(),
        }

    def _oldest_age_seconds(self) -> int | None:
        if self._service is None:
            return None
        try:
            answer = self._service.ask("GET", self._path, timeout_seconds=_AGE_SECONDS)
            found = json_text.loads(answer.body)
        except (Passing, ConnectorError):
            return None
        except ValueError:
            found = None
        if answer.status != OK or not isinstance(found, dict) or "oldest_msg_age_sec" not in found:
            # Not Queuegate, or no right to ask: it will say so again.
            self._service = None
            return None
        age: int | None = found["oldest_msg_age_sec"]
        return age
