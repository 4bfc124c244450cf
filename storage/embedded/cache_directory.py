"""The cache of this user, with what makes ephemeral starts fast. It can be deleted at any time."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path


def cache_directory(environ: Mapping[str, str]) -> Path:
    """Return the cache directory of this user; for root a system directory."""
    cache = environ.get("XDG_CACHE_HOME", "")
    if cache.startswith("/"):
        return Path(cache) / "queuegate"
    if os.geteuid() == 0:
        return Path("/var/cache/queuegate")
    return Path(environ.get("HOME") or "~").expanduser() / ".cache" / "queuegate"


def is_own(directory: Path) -> bool:
    """Create the directory if needed; return True if no other user can change it."""
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        facts = directory.lstat()
    except OSError:
        return False
    is_closed = stat.S_ISDIR(facts.st_mode) and not facts.st_mode & 0o022
    return is_closed and facts.st_uid == os.geteuid()
