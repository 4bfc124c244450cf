"""Executor mode: the driver waits for an idle queue's next messages, and is the first of its slots.

SQS has no waiting without receiving. So the receive that waits is the driver's, one at a time, and
what it brings becomes a segment as every other slot's does. Where that is all there is, tasks only
read it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from spark_connectors.errors import NotNow
from spark_connectors.source.slot_filling import Filling

_log = logging.getLogger(__name__)
_FIRST_PAUSE_SECONDS = 0.1
_MOST_PAUSE_SECONDS = 5.0


class Scout:
    """Looks at a queue until it gives something, beside the query."""

    def __init__(self, begin: Callable[[], Filling], wait_seconds: int) -> None:
        self._begin = begin
        self._wait_seconds = wait_seconds
        self._found: Filling | None = None
        self._failure: Exception | None = None
        self._is_out = False
        self._is_stopped = False
        self._changed = threading.Condition()
        self.last_error: str | None = None

    def found(self, seconds: float) -> Filling | None:
        """What came, which is then the caller's; None: nothing has within that time.

        It goes on looking until something does. Raises what ended that.
        """
        with self._changed:
            if not self.is_out:
                self._is_out = True
                threading.Thread(target=self._run, name="scout", daemon=True).start()
            self._changed.wait_for(lambda: not self._is_out, seconds)
            if self._failure is not None:
                raise self._failure
            found, self._found = self._found, None
        if found is not None and found.is_late:
            # Another source of the same query took its time, and these may be elsewhere by now.
            found.give_back()
            return None
        return found

    @property
    def is_out(self) -> bool:
        """Whether it is looking, or nobody has asked yet what came of it."""
        return self._is_out or self._found is not None or self._failure is not None

    def stop(self) -> None:
        """Give back what was found; what comes later is given back as well."""
        with self._changed:
            self._is_stopped = True
            found, self._found = self._found, None
            self._changed.notify_all()
        if found is not None:
            found.give_back()

    def _run(self) -> None:
        found, failure, pause = None, None, _FIRST_PAUSE_SECONDS
        while found is None and failure is None and not self._is_stopped:
            try:
                found = self._looked()
                pause, self.last_error = _FIRST_PAUSE_SECONDS, None
            except NotNow as passing:
                # A gateway that restarts must not end a stream.
                self.last_error = str(passing)
                _log.warning("waiting for messages: %s", passing)
                with self._changed:
                    self._changed.wait_for(lambda: self._is_stopped, pause)
                pause = min(2 * pause, _MOST_PAUSE_SECONDS)
            except Exception as broken:  # noqa: BLE001
                failure = broken
        with self._changed:
            self._failure, self._is_out = failure, False
            if not self._is_stopped:
                self._found, found = found, None
            self._changed.notify_all()
        if found is not None:
            found.give_back()

    def _looked(self) -> Filling | None:
        filling = self._begin()
        return filling if filling.look(self._wait_seconds) else None
