"""Make messages visible again that were received in vain."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from spark_connectors.errors import ConnectorError
from spark_connectors.transport.aws.calls import Transport

_log = logging.getLogger(__name__)


def give_back(transport: Transport, url: str, receipts: Sequence[str]) -> None:
    """Set the visibility timeout of these messages to zero. When that fails, time does it."""
    try:
        transport.change_visibility(url, receipts, 0)
    except ConnectorError as passing:
        _log.info("not given back: %s", passing)
