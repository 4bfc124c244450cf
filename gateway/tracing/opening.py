"""Opens the traces of a process, when they are on. Only then their libraries are loaded."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gateway.config import Settings
    from gateway.tracing.spans import Tracing


@contextlib.asynccontextmanager
async def open_tracing(settings: Settings) -> AsyncIterator[Tracing | None]:
    """What makes spans; None when they are off. What is left at the end is exported, for two
    seconds at most."""
    if not settings.otlp_enabled:
        yield None
        return
    from gateway.tracing.exporting import Exporting
    from gateway.tracing.spans import Tracing

    exporting = Exporting(settings.otlp_endpoint)
    try:
        yield Tracing(exporting.tracer, settings.otlp_sample_rate)
    finally:
        await exporting.close()
