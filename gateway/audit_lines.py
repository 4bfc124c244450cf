"""The audit log: its destination, and the limit of its lines.

Each change is one line. The first of several equal refusals is one line at once; each second with
more of them adds a line with their count. Refusals are equal if they differ in the request id only.
A process writes lines for at most 20 different refusals a second. Further refusals are one line for
each reason, with the count alone. A flood of refusals is therefore a few kilobytes a second.

A process also keeps its newest 1,000 lines in memory, for people who look at them.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import re
import time
from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import orjson

from queuegate.gateway.configuration.settings import BadSetting
from queuegate.gateway.log_lines import JsonLines, RateLimitedLogger, escaped, formatter

if TYPE_CHECKING:
    from queuegate.gateway.configuration.settings import Settings

OFF, STDERR = "off", "stderr"
NEWEST: Final = "audit"
"""The question to other processes of the gateway for their newest lines; a number follows."""
MOST_KEPT: Final = 1_000
"""Lines that a process keeps in memory."""

_log = logging.getLogger("queuegate.audit")
_server_log = logging.getLogger("queuegate.server")
_MOST_DIFFERENT = 20
_WINDOW_SECONDS = 1.0
_MAX_VALUE_CHARACTERS = 256
_SHOWN_KEYS = re.compile(r"(qg_[0-9]+_)[\w-]+")
_unwritten = RateLimitedLogger(60.0)


def is_on(settings: Settings) -> bool:
    """Return True if changes and refusals are audited."""
    return destination(settings) != OFF


def destination(settings: Settings) -> str:
    """Return off, stderr, or the path of a file."""
    return settings.audit or (STDERR if settings.auth == "sigv4" else OFF)


def configure(settings: Settings) -> None:
    """Open the audit log of this process. Raises BadSetting if it cannot be written."""
    for handler in [*_log.handlers]:
        _log.removeHandler(handler)
        handler.close()
    target = destination(settings)
    _log.addHandler(_handler(target, settings))
    # QUEUEGATE_LOG_LEVEL does not apply to the audit log.
    _log.setLevel(logging.INFO)
    _log.propagate = False


def _handler(target: str, settings: Settings) -> logging.Handler:
    if target == OFF:
        return logging.NullHandler()
    if target == STDERR:
        handler = logging.StreamHandler()
        handler.setFormatter(formatter(settings))
        return handler
    file = _File(target)
    try:
        file.write("")
    except OSError as error:
        raise BadSetting(
            f"QUEUEGATE_AUDIT={target!r}: the file cannot be written: {error.strerror}"
        ) from None
    file.setFormatter(JsonLines())
    return file


class _File(logging.Handler):
    """A file that several processes append to, readable by its owner and group.

    Each line opens the file, so that logrotate can move or delete it without a signal.
    """

    def __init__(self, path: str) -> None:
        super().__init__()
        self._path = path

    def write(self, text: str) -> None:
        """Append the text. Raises OSError if not all of it was written."""
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK
        descriptor = os.open(self._path, flags, 0o640)
        try:
            data = text.encode("utf-8", "backslashreplace")
            if os.write(descriptor, data) < len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        finally:
            os.close(descriptor)

    def emit(self, record: logging.LogRecord) -> None:
        """Write the line. A failure is logged: a full disk does not refuse requests."""
        try:
            self.write(self.format(record) + "\n")
        except OSError as error:
            text = "a line of the audit log is lost: %s cannot be written: %s"
            _unwritten.warn(_server_log, text, self._path, error.strerror)


def cleaned(value: object) -> object:
    """Shorten and escape a value, and hide API keys that a client sent in a wrong place."""
    if not isinstance(value, str):
        return value
    text = (
        value if len(value) <= _MAX_VALUE_CHARACTERS else value[: _MAX_VALUE_CHARACTERS - 3] + "..."
    )
    return _SHOWN_KEYS.sub(r"\1...", escaped(text))


def _write(level: int, message: str, facts: Mapping[str, object]) -> dict[str, object]:
    """Write a line; return its facts."""
    known = {name: cleaned(value) for name, value in facts.items() if value not in ("", None)}
    _log.log(level, message, extra=known)
    return known


def write_change(facts: Mapping[str, object]) -> None:
    """Write a change: the caller, the operation and the resource."""
    _write(logging.INFO, "changed", facts)


class _Repeated:
    """A refusal, and the count of equal ones since its last line."""

    __slots__ = ("count", "facts", "request_id")

    def __init__(self, facts: Mapping[str, object]) -> None:
        self.facts = facts
        self.count = 0
        self.request_id = ""


class Audit:
    """The audit log of a process. ``facts`` are values by name, always in the same order."""

    def __init__(self) -> None:
        self._repeated: dict[tuple[object, ...], _Repeated] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._newest: deque[dict[str, object]] = deque(maxlen=MOST_KEPT)

    def newest(self, number: str) -> bytes:
        """Return, as JSON, at most so many of the newest lines, the newest first."""
        return orjson.dumps([*self._newest][: -1 - int(number) : -1])

    def _write(self, level: int, event: str, facts: Mapping[str, object]) -> None:
        known = _write(level, event, facts)
        self._newest.append({**known, "at": time.time(), "event": event})

    def changed(self, facts: Mapping[str, object], request_id: str) -> None:
        """Write a change."""
        self._write(logging.INFO, "changed", {**facts, "request_id": request_id})

    def refused(self, facts: Mapping[str, object], request_id: str) -> None:
        """Write a refused call, or count it; ``facts`` contains the ``reason``."""
        key = tuple(facts.values())
        known = self._repeated.get(key)
        if known is None:
            if len(self._repeated) < _MOST_DIFFERENT:
                self._repeated[key] = _Repeated(facts)
                self._write(logging.WARNING, "refused", {**facts, "request_id": request_id})
                self._wait()
                return
            others = {"reason": facts["reason"]}
            known = self._repeated.setdefault(tuple(others.values()), _Repeated(others))
        known.count += 1
        known.request_id = request_id

    def _wait(self) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_WINDOW_SECONDS, self._sum_up)

    def _sum_up(self) -> None:
        self._timer = None
        self.flush()
        if self._repeated:
            self._wait()

    def flush(self) -> None:
        """Write a line for each refusal with a count."""
        repeated = {key: one for key, one in self._repeated.items() if one.count}
        self._repeated = repeated
        for one in repeated.values():
            # The last request id: it is the one that a client asks about.
            facts = {**one.facts, "count": one.count, "request_id": one.request_id}
            self._write(logging.WARNING, "refused", facts)
            one.count = 0

    async def aclose(self) -> None:
        """Write the counts and stop the timer."""
        if self._timer is not None:
            self._timer.cancel()
        self.flush()
