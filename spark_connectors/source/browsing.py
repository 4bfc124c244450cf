"""Browse: what lies in a queue, read without receiving it, where the endpoint offers that.

The pages are Queuegate's ``GET /v1/queues/{name}/browse``.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

from spark_connectors.errors import ConnectorError, Refused
from spark_connectors.transport.aws import Connection, open_service
from spark_connectors.transport.aws.wire import Message
from spark_connectors.transport.http import json_text
from spark_connectors.transport.http.answers import NO_CONTENT, OK, Answer
from spark_connectors.transport.http.retries import Passing, retried

_PAGE_ROWS = 1_000
_PAGE_SECONDS = 60.0
_NOT_FOUND, _LEAST_FAILURE = 404, 500
_MOST_PARTS = 1_000


class NotOffered(ConnectorError):
    """The endpoint has no browsing: AWS, or another server."""


class Range(NamedTuple):
    """Messages behind ``after`` up to ``until``, None: from the first, to the last; as of then."""

    after: str | None
    until: str | None
    as_of: str


class QueueBrowser:
    """Browses one queue. Opened where it is used; nothing of it is pickled."""

    def __init__(self, connection: Connection, queue: str) -> None:
        service = open_service(connection)
        if service is None:
            raise NotOffered("AWS has no browsing: mode=peek, or mode=drain")
        self._service = service
        self._path = f"/v1/queues/{quote(queue, safe='')}/browse"
        self._max_retries = connection.max_retries

    def split(self, parts: int) -> list[Range]:
        """At most so many ranges that hold about as many messages each.

        Raises NotOffered, Refused for a queue that does not exist, NotNow.
        """
        found = self._get("/ranges", {"parts": str(min(parts, _MOST_PARTS))})
        try:
            as_of = str(found["as_of"])
            return [Range(one["after"], one["until"], as_of) for one in found["ranges"]]
        except (KeyError, TypeError):
            raise self._not_offered() from None

    def pages(self, stretch: Range, filters: Mapping[str, str]) -> Iterator[list[Message]]:
        """The messages of a range, as ReceiveMessage would give them but without receipts."""
        asked = {"limit": str(_PAGE_ROWS), "as_of": stretch.as_of, **filters}
        if stretch.until is not None:
            asked["until"] = stretch.until
        after = stretch.after
        while True:
            page = self._get("", asked if after is None else asked | {"after": after})
            yield [_message(one) for one in page["messages"]]
            after = page["next"]
            if after is None:
                return

    def _get(self, path: str, asked: Mapping[str, str]) -> dict[str, Any]:
        query = urlencode(sorted(asked.items()), quote_via=quote)
        answer = self._answer("GET", f"{self._path}{path}?{query}")
        try:
            found = json_text.loads(answer.body)
        except ValueError:
            raise self._not_offered() from None
        if answer.status == OK and isinstance(found, dict):
            return found
        raise self._refusal(answer.status, found)

    def _answer(self, method: str, target: str) -> Answer:
        """Raises NotNow."""

        def attempt() -> Answer:
            answer = self._service.ask(method, target, timeout_seconds=_PAGE_SECONDS)
            if answer.status >= _LEAST_FAILURE:
                raise Passing(f"HTTP {answer.status}")
            return answer

        place = self._service.endpoint.url
        return retried(attempt, action="browse", place=place, max_retries=self._max_retries)

    def _refusal(self, status: int, found: object) -> ConnectorError:
        """Why it was refused: by an endpoint that browses, or because it does not know the path."""
        said = found.get("error") if isinstance(found, dict) else None
        offered = self._answer("OPTIONS", self._path)
        if offered.status != NO_CONTENT or not isinstance(said, str):
            return self._not_offered()
        return Refused("QueueDoesNotExist" if status == _NOT_FOUND else f"HTTP {status}", said)

    def _not_offered(self) -> NotOffered:
        return NotOffered(f"{self._service.endpoint.url} has no browsing: mode=peek, or mode=drain")


def _message(shown: Mapping[str, Any]) -> Message:
    attributes = shown["message_attributes"]
    for value in attributes.values():
        if value.get("BinaryValue") is not None:
            value["BinaryValue"] = base64.b64decode(value["BinaryValue"])
    return {
        "MessageId": shown["message_id"],
        "Body": shown["body"],
        "MD5OfBody": shown["md5_of_body"],
        "Attributes": shown["attributes"],
        "MessageAttributes": attributes,
    }
