"""Options that name a queue."""

from __future__ import annotations

from typing import Any

from spark_connectors.errors import Refused
from spark_connectors.options.declaring import TEXT, BadOption, Option
from spark_connectors.transport.aws import Connection, Transport, open_transport

_NO_RIGHT = frozenset({"AccessDenied", "AuthorizationError"})

QUEUE = (
    Option("queueUrl", TEXT, None, "The queue; this or `queueName`.", ("sqsUrl",), "required"),
    Option("queueName", TEXT, None, "The queue by name."),
    Option("queueOwnerAWSAccountId", TEXT, None, "Whose queue `queueName` is."),
)


class QueuePlace:
    """The queue that options name; its URL is asked for once, when it is first needed."""

    def __init__(self, options: dict[str, Any]) -> None:
        self._url: str | None = options["queueUrl"]
        self._name: str | None = options["queueName"]
        self._owner: str | None = options["queueOwnerAWSAccountId"]
        if (self._url is None) == (self._name is None):
            raise BadOption("one of queueUrl and queueName is required, and not both")
        if self._url is not None and "://" not in self._url:
            raise BadOption(f"option 'queueUrl': '{self._url}' is no URL; a name goes in queueName")

    @property
    def name(self) -> str:
        """The queue's name, as it ends the URL."""
        return self._name or (self._url or "").rstrip("/").rpartition("/")[2]

    @property
    def is_fifo(self) -> bool:
        """Whether it is a FIFO queue: those are known by their names."""
        return self.name.endswith(".fifo")

    def check(self, connection: Connection) -> None:
        """Raise Refused for a queue that does not exist, NotNow for an endpoint that does not
        answer, ConnectorError for one that is none or when there are no credentials."""
        transport = open_transport(connection)
        try:
            transport.figures(self.url(transport))
        except Refused as no:
            # Who may only send needs no right to look.
            if no.code not in _NO_RIGHT:
                what = self._url or f"queue '{self.name}'"
                raise Refused(no.code, f"{no.message} (asking for {what})") from None
        finally:
            transport.close()

    def url(self, transport: Transport) -> str:
        """The queue's URL. Raises what Transport.queue_url raises."""
        if self._url is None:
            assert self._name is not None
            self._url = transport.queue_url(self._name, self._owner)
        return self._url
