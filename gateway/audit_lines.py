"""What is audited, as lines of a logger of its own: where they go, and how many there may be.

A change is one line. Refused calls that are equal in all but their request ids are one line at
once, and then one for each second in which there were more, with their number. A process writes
of twenty different ones in a second; what is refused beyond that is one line for each reason, with
the number alone. So a flood is a few kilobytes a second, whatever strangers think of.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from queuegate.gateway.configuration.settings import BadSetting
from queuegate.gateway.log_lines import JsonLines, Seldom, escaped, formatter

if TYPE_CHECKING:
    from queuegate.gateway.configuration.settings import Settings

OFF, STDERR = "off", "stderr"

_log = logging.getLogger("queuegate.audit")
_server_log = logging.getLogger("queuegate.server")
_MOST_DIFFERENT = 20
_WINDOW_SECONDS = 1.0
_LONGEST = 256
_SHOWN_KEYS = re.compile(r"(qg_[0-9]+_)[\w-]+")
_unwritten = Seldom(60.0)


def is_on(settings: Settings) -> bool:
    """Whether anything is audited."""
    return _target(settings) != OFF


def _target(settings: Settings) -> str:
    return settings.audit or (STDERR if settings.auth == "sigv4" else OFF)


def configure(settings: Settings) -> None:
    """Let the lines of this process go where the settings say. BadSetting: they cannot."""
    for handler in [*_log.handlers]:
        _log.removeHandler(handler)
        handler.close()
    target = _target(settings)
    _log.addHandler(_handler(target, settings))
    # QUEUEGATE_LOG_LEVEL is about other loggers.
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
            f"QUEUEGATE_AUDIT={target!r}: it cannot be written: {error.strerror}"
        ) from None
    file.setFormatter(JsonLines())
    return file


class _File(logging.Handler):
    """A file that several processes append to, for its owner and group. It is opened for each line,
    so that whoever moves it away or deletes it, as logrotate does, need not tell anybody."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self._path = path

    def write(self, text: str) -> None:
        """Append that. OSError: it was not, or not all of it."""
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK
        descriptor = os.open(self._path, flags, 0o640)
        try:
            data = text.encode("utf-8", "backslashreplace")
            if os.write(descriptor, data) < len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        finally:
            os.close(descriptor)

    def emit(self, record: logging.LogRecord) -> None:
        """Write the line; that one finds no room is no reason to refuse requests."""
        try:
            self.write(self.format(record) + "\n")
        except OSError as error:
            text = "a line of the audit is lost: %s cannot be written: %s"
            _unwritten.warn(_server_log, text, self._path, error.strerror)


def cleaned(value: object) -> object:
    """A value as a line may have it: short, escaped, and without a key that somebody put in a wrong
    place."""
    if not isinstance(value, str):
        return value
    text = value if len(value) <= _LONGEST else value[: _LONGEST - 3] + "..."
    return _SHOWN_KEYS.sub(r"\1...", escaped(text))


def _write(level: int, message: str, facts: Mapping[str, object]) -> None:
    known = {name: cleaned(value) for name, value in facts.items() if value not in ("", None)}
    _log.log(level, message, extra=known)


def write_change(facts: Mapping[str, object]) -> None:
    """Write that something was changed: who did what to what."""
    _write(logging.INFO, "changed", facts)


class _Repeated:
    """A refusal that may come again."""

    __slots__ = ("count", "facts", "request_id")

    def __init__(self, facts: Mapping[str, object]) -> None:
        self.facts = facts
        self.count = 0
        self.request_id = ""


class Audit:
    """What a process writes. Facts are values by their names, in the same order each time."""

    def __init__(self) -> None:
        self._repeated: dict[tuple[object, ...], _Repeated] = {}
        self._timer: asyncio.TimerHandle | None = None

    def changed(self, facts: Mapping[str, object], request_id: str) -> None:
        """Write a change."""
        write_change({**facts, "request_id": request_id})

    def refused(self, facts: Mapping[str, object], request_id: str) -> None:
        """Write a refused call, or count it; ``facts`` has its ``reason``."""
        key = tuple(facts.values())
        known = self._repeated.get(key)
        if known is None:
            if len(self._repeated) < _MOST_DIFFERENT:
                self._repeated[key] = _Repeated(facts)
                _write(logging.WARNING, "refused", {**facts, "request_id": request_id})
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
        """Write what was counted."""
        going_on = {key: one for key, one in self._repeated.items() if one.count}
        self._repeated = going_on
        for one in going_on.values():
            # Of several the last: who asks again asks about that one.
            facts = {**one.facts, "count": one.count, "request_id": one.request_id}
            _write(logging.WARNING, "refused", facts)
            one.count = 0

    async def aclose(self) -> None:
        """Write what was counted; nothing is any more."""
        if self._timer is not None:
            self._timer.cancel()
        self.flush()
