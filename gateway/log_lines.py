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

# What every record has; whatever else it carries came through `extra` and belongs into the line.
_PLAIN = re.compile(r"[^\s\"\\\x00-\x1f\x7f]+").fullmatch
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def configure(settings: Settings) -> None:
    """Send the records of this process to stderr in the form that the settings ask for."""
    handler = logging.StreamHandler()
    handler.setFormatter(formatter(settings))
    logging.basicConfig(level=settings.log_level.upper(), handlers=[handler], force=True)
    # Its notes on starting and stopping repeat what ours say.
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    logging.getLogger("asyncio").setLevel(logging.WARNING)
    # It reports each attempt to reach a lost database with a traceback; /readyz says it in a line.
    logging.getLogger("asyncpg.pool").setLevel(logging.ERROR)


def formatter(settings: Settings) -> logging.Formatter:
    """What makes lines on stderr of records."""
    as_json = settings.log_format == "json"
    if settings.log_format == "auto":
        as_json = not sys.stderr.isatty()
    return JsonLines() if as_json else TextLines()


class Seldom:
    """A warning that strangers can provoke: one line in so many seconds, which says how many there
    were since the line before."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._next_at = 0.0
        self._unsaid = 0

    def warn(self, log: logging.Logger, text: str, *arguments: object) -> None:
        """Write the line, or count it."""
        now = time.monotonic()
        if now < self._next_at:
            self._unsaid += 1
            return
        self._next_at = now + self._seconds
        if self._unsaid:
            text += f" ({self._unsaid} more since the last such line)"
            self._unsaid = 0
        log.warning(text, *arguments)


class JsonLines(logging.Formatter):
    """One JSON object for each record: time, level, logger, message, what it carries, traceback."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": _instant(record).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **_carried(record),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False, default=str)


class TextLines(logging.Formatter):
    """Time, level, logger and message, then what the record carries as name=value."""

    def format(self, record: logging.LogRecord) -> str:
        time = _instant(record).astimezone().strftime("%H:%M:%S.%f")[:-3]
        message = escaped(record.getMessage())
        words = [time, record.levelname.lower(), record.name, message]
        words += [f"{name}={_quoted(value)}" for name, value in _carried(record).items()]
        line = " ".join(words)
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        return line


def escaped(text: str) -> str:
    """The text without anything that a terminal, or whoever reads line by line, would obey."""
    if text.isprintable():
        return text
    return "".join(
        one if one.isprintable() else one.encode("unicode_escape").decode() for one in text
    )


def _quoted(value: object) -> str:
    """Nothing that looks like another name and value, or like another line."""
    text = str(value)
    return text if _PLAIN(text) else json.dumps(text)


def _instant(record: logging.LogRecord) -> datetime:
    return datetime.fromtimestamp(record.created, UTC)


def _carried(record: logging.LogRecord) -> dict[str, Any]:
    return {name: value for name, value in vars(record).items() if name not in _STANDARD}
