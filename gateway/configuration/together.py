"""Settings that do not go together."""

from __future__ import annotations

from collections.abc import Container
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from queuegate.gateway.configuration.settings import Settings


def conflict_of(settings: Settings) -> str | None:
    """What is wrong with settings of which each is right by itself; None: nothing."""
    if settings.master_keys is not None and settings.master_key_file is not None:
        return (
            "QUEUEGATE_MASTER_KEY and QUEUEGATE_MASTER_KEY_FILE exclude each other: leave one of "
            "them out."
        )
    has_key = settings.master_keys or settings.master_key_file or settings.ephemeral
    if settings.auth == "sigv4" and not has_key:
        return (
            "QUEUEGATE_AUTH=sigv4 needs QUEUEGATE_MASTER_KEY_FILE, which secrets of keys are "
            "encrypted with: `openssl rand -base64 32 > FILE` makes one. Keep it: without it the "
            "keys are lost."
        )
    if settings.ephemeral and settings.database_url is not None:
        return (
            "--ephemeral and DATABASE_URL exclude each other: ephemeral data lives in a "
            "PostgreSQL that Queuegate starts itself. Leave one of them out."
        )
    if (settings.signing_key_file is None) != (settings.signing_certificate_file is None):
        return (
            "QUEUEGATE_SIGNING_KEY_FILE and QUEUEGATE_SIGNING_CERTIFICATE_FILE belong together: "
            "set both of them or none."
        )
    if (settings.tls_certificate is None) != (settings.tls_key is None):
        return "--tls-certificate and --tls-key belong together: set both of them or none."
    return None


def conflict_of_flags(flags: Container[str], settings: Settings) -> str | None:
    """Return why a flag has no effect with these settings; None: it has one."""
    if "data_dir" in flags and settings.ephemeral:
        return (
            "--data and --ephemeral exclude each other: ephemeral data lives in a temporary "
            "directory. Leave one of them out."
        )
    if "data_dir" in flags and settings.database_url is not None:
        return (
            "--data and DATABASE_URL exclude each other: --data is for the PostgreSQL that "
            "Queuegate starts itself. Leave one of them out."
        )
    return None
