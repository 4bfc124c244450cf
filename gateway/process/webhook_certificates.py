"""The certificates of a private authority that web hooks may be signed by."""

from __future__ import annotations

from typing import TYPE_CHECKING

from queuegate.gateway.configuration.settings import BadSetting

if TYPE_CHECKING:
    from queuegate.gateway.configuration.settings import Settings


def check_ca_file(settings: Settings) -> None:
    """BadSetting when the file that is named cannot be used."""
    file = settings.webhook_ca_file
    if file is None:
        return
    import ssl

    try:
        ssl.create_default_context(cafile=file)
    except ssl.SSLError:
        reason = "holds no certificate in PEM"
    except OSError as error:
        reason = f"cannot be read: {error.strerror}"
    else:
        return
    raise BadSetting(f"QUEUEGATE_WEBHOOK_CA_FILE={str(file)!r}: {reason}")
