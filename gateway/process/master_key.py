"""The key that secrets of access keys are encrypted with, where a file has it."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

from queuegate.gateway.configuration.settings import BadSetting
from queuegate.gateway.configuration.values import BadValue, parse_master_keys

if TYPE_CHECKING:
    from queuegate.gateway.configuration.settings import Settings

_MOST_BYTES = 4096


def with_master_key(settings: Settings) -> Settings:
    """Return the settings with the keys of the file, read once, or with a new key for ephemeral
    data.

    BadSetting names a file that cannot be used, and shows nothing of what is in it.
    """
    file = settings.master_key_file
    if settings.ephemeral and settings.auth == "sigv4" and not (file or settings.master_keys):
        # The keys go with the data.
        return replace(settings, master_keys=(os.urandom(32),))
    if file is None:
        return settings
    try:
        with file.open("rb") as opened:
            text = opened.read(_MOST_BYTES).decode("ascii", "replace")
        return replace(settings, master_keys=parse_master_keys(text), master_key_file=None)
    except OSError as error:
        reason = f"cannot be read: {error.strerror}"
    except BadValue:
        reason = (
            "is not 32 bytes in Base64 or hexadecimal digits, or two lines of them: `openssl rand "
            "-base64 32`"
        )
    raise BadSetting(f"QUEUEGATE_MASTER_KEY_FILE={str(file)!r}: {reason}")
