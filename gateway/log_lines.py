"""Log records as lines on stderr: JSON for collectors, text for people."""

from __future__ import annotations

import json
import logging
import re
import sys
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from queuegate.gateway.configuration.settings import Settings

_PLAIN = re.compile(r"[^\s\"\\\x00-\x1f\x7f]+").fullmatch
# Attributes of every record. All others came through `extra` and belong into the line.
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def configure(settings: Settings) -> None:
    """Log the records of this process to stderr in the configured format."""
    handler = logging.StreamHandler()
    handler.setFormatter(formatter(settings))
    logging.basicConfig(level=settings.log_level.upper(), handlers=[handler], force=True)
    # Uvicorn's records on start and stop repeat ours.
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    logging.getLogger("asyncio").setLevel(logging.WARNING)
    # The pool logs a traceback for each failed connection; /readyz reports a lost database.
    logging.getLogger("asyncpg.pool").setLevel(logging.ERROR)


def formatter(settings: Settings) -> logging.Formatter:
    """Return the formatter of the configured format."""
    as_json = settings.log_format == "json"
    if settings.log_format == "auto":
        as_json = not sys.stderr.isatty()
    return JsonLines() if as_json else TextLines()


class RateLimitedLogger:
    """A logger of warnings that any client can provoke: one line in ``seconds``, with the count of
    warnings that were left out."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._next_at = 0.0
        self._left_out = 0

    def warn(self, log: logging.Logger, text: str, *arguments: object) -> None:
        """Log the warning, or count it."""
        now = time.monotonic()
        if now < self._next_at:
            self._left_out += 1
            return
        self._next_at = now + self._seconds
        if self._left_out:
            text += f" ({self._left_out} more since the last such line)"
            self._left_out = 0
        log.warning(text, *arguments)


class JsonLines(logging.Formatter):
    """One JSON object for each record: time, level, logger, message, its extras, traceback."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": _instant(record).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **_extras(record),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False, default=str)


class TextLines(logging.Formatter):
    """Time, level, logger and message, then the extras of the record as name=value."""

    def format(self, record: logging.LogRecord) -> str:
        time = _instant(record).astimezone().strftime("%H:%M:%S.%f")[:-3]
        message = escaped(record.getMessage())
        parts = [time, record.levelname.lower(), record.name, message]
        parts += [f"{name}={_quoted(value)}" for name, value in _extras(record).items()]
        line = " ".join(parts)
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        return line


def escaped(text: str) -> str:
    """Escape characters that control a terminal or break a line."""
    if text.isprintable():
        return text
    return "".join(
        one if one.isprintable() else one.encode("unicode_escape").decode() for one in text
    )


def _quoted(value: object) -> str:
    """Quote a value that would look like another name=value, or like another line."""
    text = str(value)
    return text if _PLAIN(text) else json.dumps(text)


def _instant(record: logging.LogRecord) -> datetime:
    return datetime.fromtimestamp(record.created, UTC)


def _extras(record: logging.LogRecord) -> dict[str, Any]:
    return {name: value for name, value in vars(record).items() if name not in _STANDARD}
