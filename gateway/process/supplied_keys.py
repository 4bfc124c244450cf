"""Keys that an operator supplies as files with their certificates: to sign, and for TLS."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from queuegate.gateway.configuration.settings import BadSetting

if TYPE_CHECKING:
    from queuegate.gateway.configuration.settings import Settings
    from queuegate.gateway.http.tls import Certificate
    from queuegate.storage.topics.signing_keys import SigningKey

_KEY = "QUEUEGATE_SIGNING_KEY_FILE"
_CERTIFICATE = "QUEUEGATE_SIGNING_CERTIFICATE_FILE"
_MOST_BYTES = 1_048_576


def supplied_key(settings: Settings) -> SigningKey | None:
    """The key with its certificate, None where none is supplied.

    BadSetting names the file that cannot be used, and shows nothing of what is in it.
    """
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
    """What the port speaks TLS with, None where it does not; BadSetting says why it cannot."""
    certificate, key = settings.tls_certificate, settings.tls_key
    if certificate is None or key is None:
        return None
    from queuegate.gateway.http.tls import CannotUse, Certificate

    try:
        return Certificate(certificate, key)
    except CannotUse as error:
        raise BadSetting(f"--tls-certificate and --tls-key: {error}") from None


def _read(name: str, path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            content = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise _bad(name, path, f"cannot be read: {error.strerror}") from None
    if len(content) > _MOST_BYTES:
        raise _bad(name, path, "is too large for a PEM file")
    return content


def _bad(name: str, path: Path, reason: str) -> BadSetting:
    return BadSetting(f"{name}={str(path)!r}: {reason}")
