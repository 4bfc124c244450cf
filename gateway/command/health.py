"""The health check of a container: one request that costs little."""

from __future__ import annotations

import sys
from pathlib import Path

from queuegate.gateway.command.asking import NoAnswer, ask

_SHOWN = 2000


def examine(url: str, certificate: Path | None = None) -> int:
    """0 when the URL answers with 200, else 1 and a line that says what came instead. By https that
    certificate is expected, if there is one."""
    try:
        answer = ask("GET", url, certificate=certificate)
    except NoAnswer as silence:
        print(f"queuegate: {silence}", file=sys.stderr)
        return 1
    if answer.status != 200:
        told = answer.body[:_SHOWN].decode("utf-8", "replace").strip()
        print(f"queuegate: {url} answered {answer.status}: {told}", file=sys.stderr)
        return 1
    return 0
