"""Where on a disk things are that nobody said the place of."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path


def default_data_dir(environ: Mapping[str, str]) -> Path:
    """The state directory of this user; for root, whose home is closed to others, a system one."""
    if os.geteuid() == 0:
        return Path("/var/lib/queuegate")
    state = environ.get("XDG_STATE_HOME", "")
    if state.startswith("/"):
        return Path(state) / "queuegate"
    return Path(environ.get("HOME") or "~").expanduser() / ".local" / "state" / "queuegate"
