"""The key that secrets of access keys are encrypted with, where a file has it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from gateway.configuration.settings import BadSetting
from gateway.configuration.values import BadValue, parse_master_keys

if TYPE_CHECKING:
    from gateway.configuration.settings import Settings

_MOST_BYTES = 4096


def with_master_key(settings: Settings) -> Settings:
    """The settings with the keys that the file has: it is read once, by whoever may.

    BadSetting names a file that cannot be used, and shows nothing of what is in it.
    """
    file = settings.master_key_file
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
