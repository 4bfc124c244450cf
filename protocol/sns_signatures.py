"""Signatures of SNS messages: what is signed, and how (docs/contract/sns.md 3.6).

Signing is loaded when something is signed first: it takes longer to import than all the rest here.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from queuegate.protocol.errors import Malformed

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
    from cryptography.hazmat.primitives.hashes import HashAlgorithm

VERSIONS: Final = ("1", "2")
"""What a SignatureVersion may be: "1" signs with SHA-1, "2" with SHA-256."""

_NOTIFICATION = ("Message", "MessageId", "Subject", "Timestamp", "TopicArn", "Type")
_CONFIRMATION = (
    "Message",
    "MessageId",
    "SubscribeURL",
    "Timestamp",
    "Token",
    "TopicArn",
    "Type",
)
_SIGNED: Final[dict[str, tuple[str, ...]]] = {
    "Notification": _NOTIFICATION,
    "SubscriptionConfirmation": _CONFIRMATION,
    "UnsubscribeConfirmation": _CONFIRMATION,
}
_OPTIONAL = "Subject"


def string_to_sign(envelope: Mapping[str, str]) -> bytes:
    """What the signature of this message covers: a name and its value on a line each.

    Values as they are in the message, not as JSON writes them; attributes are not covered.
    Malformed when the type is unknown, or when a member that is signed is absent or not a text.
    """
    names = _SIGNED.get(envelope.get("Type", ""))
    if names is None:
        raise Malformed("The message has no type that is signed")
    lines = []
    for name in names:
        value = envelope.get(name)
        if value is None and name == _OPTIONAL:
            continue
        if not isinstance(value, str):
            raise Malformed(f"The message has no {name}")
        lines.append(f"{name}\n{value}\n")
    try:
        return "".join(lines).encode()
    except UnicodeEncodeError:
        raise Malformed("The message is not Unicode text") from None


def sign(private_key: RSAPrivateKey, version: str, data: bytes) -> str:
    """The signature in base64. The same data always gets the same signature."""
    from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15

    signature = private_key.sign(data, PKCS1v15(), _hash(version))
    return base64.b64encode(signature).decode("ascii")


def verify(certificate_pem: str, envelope: Mapping[str, str]) -> bool:
    """Whether the owner of this certificate signed this message.

    Looks at the signature alone: not at who issued the certificate, nor at where the message says
    that it lies. Malformed when the certificate is none of an RSA key.
    """
    from cryptography import x509
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

    try:
        public_key = x509.load_pem_x509_certificate(certificate_pem.encode()).public_key()
    except ValueError:
        raise Malformed("This is not a certificate") from None
    if not isinstance(public_key, RSAPublicKey):
        raise Malformed("The certificate is not one of an RSA key")
    version = envelope.get("SignatureVersion")
    if version not in VERSIONS:
        return False
    try:
        signature = base64.b64decode(envelope.get("Signature", ""), validate=True)
        public_key.verify(signature, string_to_sign(envelope), PKCS1v15(), _hash(version))
    except (Malformed, InvalidSignature, binascii.Error, ValueError, TypeError):
        return False
    return True


def _hash(version: str) -> HashAlgorithm:
    from cryptography.hazmat.primitives import hashes

    # SHA-1 is what AWS signs with unless the topic says otherwise, and all that old verifiers know.
    return {"1": hashes.SHA1, "2": hashes.SHA256}[version]()
