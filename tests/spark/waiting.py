"""Wait for what a test expects, with a deadline."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


def wait_for(
    condition: Callable[[], object], seconds: float = 60, *, pause_seconds: float = 0.02
) -> None:
    """Return when the condition holds; a raised OSError counts as not yet.

    Raises AssertionError when it does not hold within that time.
    """
    deadline = time.monotonic() + seconds
    pause = threading.Event()
    while True:
        try:
            if condition():
                return
        except OSError:
            pass
        assert time.monotonic() < deadline, f"not within {seconds} s"
        pause.wait(pause_seconds)
