"""SQS and SNS through botocore's clients: the reference that ``lean`` is measured against."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from botocore.config import Config
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    NoCredentialsError,
)
from botocore.parsers import ResponseParserError

from spark_connectors.errors import ConnectorError, Refused
from spark_connectors.transport.aws.aws_sessions import (
    NO_CREDENTIALS,
    BotoSession,
    KeySource,
    make_client,
)
from spark_connectors.transport.aws.error_codes import code_of, is_passing, without_secrets
from spark_connectors.transport.http.http_connections import ServiceEndpoint
from spark_connectors.transport.http.http_retries import not_now

_CONNECT_SECONDS = 5
_READ_SECONDS = 30
_LONGEST_WAIT_SECONDS = 20
_METHODS = {
    "ChangeMessageVisibilityBatch": "change_message_visibility_batch",
    "DeleteMessageBatch": "delete_message_batch",
    "GetQueueAttributes": "get_queue_attributes",
    "GetQueueUrl": "get_queue_url",
    "PublishBatch": "publish_batch",
    "ReceiveMessage": "receive_message",
    "SendMessageBatch": "send_message_batch",
}


class BotoCarrier:
    """Carries calls by botocore's clients, which are made when first needed and retry by
    themselves. ``known``: endpoints by service; others are AWS's."""

    def __init__(
        self, session: BotoSession, known: Mapping[str, ServiceEndpoint], max_retries: int
    ) -> None:
        self._session = session
        self._known = known
        self._keys = KeySource(session)
        self._config = Config(
            connect_timeout=_CONNECT_SECONDS,
            read_timeout=_READ_SECONDS + _LONGEST_WAIT_SECONDS,
            max_pool_connections=32,
            parameter_validation=False,
            retries={"mode": "standard", "total_max_attempts": max_retries + 1},
        )
        self._clients: dict[str, Any] = {}
        self._lock = threading.Lock()

    @property
    def place(self) -> str:
        return self._place("sqs")

    def sqs(
        self, action: str, parameters: Mapping[str, object], *, wait_seconds: int = 0
    ) -> Mapping[str, Any]:
        # botocore has one read timeout for all calls, and none for a single one.
        del wait_seconds
        return self._call("sqs", action, parameters)

    def publish_batch(self, parameters: Mapping[str, object]) -> Mapping[str, Any]:
        return self._call("sns", "PublishBatch", parameters)

    def has_receipts(self) -> bool:
        """Return False: botocore speaks SQS alone."""
        return False

    def receipts(
        self, method: str, asked: Mapping[str, object], *, wait_seconds: int = 0
    ) -> Mapping[str, Any]:
        raise NotImplementedError

    def close(self) -> None:
        for client in list(self._clients.values()):
            client.close()

    def _call(
        self, service: str, action: str, parameters: Mapping[str, object]
    ) -> Mapping[str, Any]:
        method = getattr(self._client(service), _METHODS[action])
        try:
            answer: dict[str, Any] = method(**parameters)
        except ClientError as error:
            # Its text is unmasked, so it must not be printed as the cause.
            raise self._verdict(service, action, error.response) from None
        except NoCredentialsError as error:
            raise ConnectorError(NO_CREDENTIALS) from error
        except (BotoCoreError, ResponseParserError) as error:
            cause = f"{type(error).__name__}: {error}"
            raise not_now(action, self._place(service), 1, cause) from error
        return answer

    def _verdict(self, service: str, action: str, response: Mapping[str, Any]) -> Exception:
        error, about = response.get("Error", {}), response.get("ResponseMetadata", {})
        code = code_of(error.get("QueryErrorCode") or error.get("Code") or "")
        message = without_secrets(error.get("Message") or "", self._keys.now())
        if is_passing(code, about.get("HTTPStatusCode", 0)):
            attempts = about.get("RetryAttempts", 0) + 1
            return not_now(action, self._place(service), attempts, f"{code}: {message}")
        return Refused(code, message)

    def _place(self, service: str) -> str:
        place: str = self._client(service).meta.endpoint_url
        return place

    def _client(self, service: str) -> Any:
        found = self._clients.get(service)
        if found is not None:
            return found
        with self._lock:
            if service not in self._clients:
                known = self._known.get(service)
                self._clients[service] = make_client(
                    self._session,
                    self._keys,
                    service,
                    endpoint_url=known.url if known is not None else None,
                    config=self._config,
                )
            return self._clients[service]
