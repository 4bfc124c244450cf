"""Keys and certificates that settings name as files, or hold themselves.

Each function raises BadSetting with the name of a file that cannot be used. No text of it
shows the content of a file.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from queuegate.gateway.configuration.settings import BadSetting
from queuegate.gateway.configuration.values import BadValue, parse_master_keys

if TYPE_CHECKING:
    from queuegate.gateway.configuration.settings import Settings
    from queuegate.gateway.http.tls import Certificate
    from queuegate.storage.topics.stored_topics import SigningKey


_KEY = "QUEUEGATE_SIGNING_KEY_FILE"
_CERTIFICATE = "QUEUEGATE_SIGNING_CERTIFICATE_FILE"
_MAX_PEM_BYTES = 1_048_576
_MAX_MASTER_KEY_BYTES = 4096


def supplied_key(settings: Settings) -> SigningKey | None:
    """Return the supplied signing key with its certificate, or None."""
    key_file, certificate_file = settings.signing_key_file, settings.signing_certificate_file
    if key_file is None or certificate_file is None:
        return None
    key, certificate = _read(_KEY, key_file), _read(_CERTIFICATE, certificate_file)

    from queuegate.gateway.operations.topics.message_signing import (
        NoCertificate,
        NoRsaKey,
        key_from_pem,
    )

    try:
        return key_from_pem(key, certificate)
    except NoRsaKey as error:
        raise _bad(_KEY, key_file, str(error)) from None
    except NoCertificate as error:
        raise _bad(_CERTIFICATE, certificate_file, str(error)) from None


def tls_certificate(settings: Settings) -> Certificate | None:
    """Return the TLS certificate of the port; None without TLS."""
    certificate, key = settings.tls_certificate, settings.tls_key
    if certificate is None or key is None:
        return None
    from queuegate.gateway.http.tls import Certificate, UnusableCertificate

    try:
        return Certificate(certificate, key)
    except UnusableCertificate as error:
        raise BadSetting(f"--tls-certificate and --tls-key: {error}") from None


def _read(name: str, path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            content = file.read(_MAX_PEM_BYTES + 1)
    except OSError as error:
        raise _bad(name, path, f"cannot be read: {error.strerror}") from None
    if len(content) > _MAX_PEM_BYTES:
        raise _bad(name, path, "is too large for a PEM file")
    return content


def _bad(name: str, path: Path, reason: str) -> BadSetting:
    return BadSetting(f"{name}={str(path)!r}: {reason}")


def with_master_key(settings: Settings) -> Settings:
    """Return the settings with the file's master keys, or with a new key for ephemeral data."""
    file = settings.master_key_file
    if settings.ephemeral and settings.auth == "sigv4" and not (file or settings.master_keys):
        # The keys are deleted with the data.
        return replace(settings, master_keys=(os.urandom(32),))
    if file is None:
        return settings
    try:
        with file.open("rb") as opened:
            text = opened.read(_MAX_MASTER_KEY_BYTES).decode("ascii", "replace")
        return replace(settings, master_keys=parse_master_keys(text), master_key_file=None)
    except OSError as error:
        reason = f"cannot be read: {error.strerror}"
    except BadValue:
        reason = (
            "is not 32 bytes in Base64 or hexadecimal digits, or two lines of them: `openssl rand "
            "-base64 32`"
        )
    raise BadSetting(f"QUEUEGATE_MASTER_KEY_FILE={str(file)!r}: {reason}")


def check_ca_file(settings: Settings) -> None:
    """Check the certificate authorities for web hooks."""
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
