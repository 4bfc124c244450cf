"""RSA keys with their certificates: new ones, and those that an operator supplies.

What does cryptography is imported where it is used: few gateways sign in their first second.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from queuegate.storage.topics.signing_keys import SigningKey

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
    from cryptography.x509 import Certificate

_KEY_BITS = 2048
_VALID_DAYS = 20 * 365
_LONGEST_COMMON_NAME = 64


class NoRsaKey(Exception):
    """What should be a private key is none that can be used; the text says why."""


class NoCertificate(Exception):
    """What should be the certificate of a key is not; the text says why."""


def make_key(region: str) -> SigningKey:
    """A new key with a certificate of its own making.

    Most verifiers look at the key alone. Those of the SDKs for Java and .NET also want the host
    name of SNS in the certificate and a chain to what they trust: they may take this one once it is
    in their trust store, and never if it expires, hence the names and the twenty years.
    """
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import rsa
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    private_key = rsa.generate_private_key(65537, _KEY_BITS)
    hosts = [f"sns.{region}.amazonaws.com", "sns.amazonaws.com"]
    common = next(host for host in hosts if len(host) <= _LONGEST_COMMON_NAME)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, common)])
    # Clocks differ: valid from yesterday on.
    begins = datetime.now(UTC) - timedelta(days=1)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(private_key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begins)
        .not_valid_after(begins + timedelta(days=_VALID_DAYS))
        .add_extension(x509.SubjectAlternativeName([*map(x509.DNSName, hosts)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .sign(private_key, hashes.SHA256())
    )
    text = private_key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return SigningKey(_fingerprint(certificate), _pem(certificate), text.decode("ascii"))


def key_from_pem(private_key: bytes, certificate: bytes) -> SigningKey:
    """A key that was supplied, with the first certificate of its file; NoRsaKey, NoCertificate."""
    from cryptography import x509
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    loaded = load_private_key(private_key)
    try:
        found = x509.load_pem_x509_certificate(certificate)
        public_key = found.public_key()
    except (ValueError, UnsupportedAlgorithm):
        raise NoCertificate("this is not a certificate in PEM") from None
    if not isinstance(public_key, RSAPublicKey):
        raise NoCertificate("this is not the certificate of an RSA key")
    if public_key.public_numbers() != loaded.public_key().public_numbers():
        raise NoCertificate("this is the certificate of another key")
    text = loaded.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return SigningKey(_fingerprint(found), _pem(found), text.decode("ascii"))


def load_private_key(text: bytes) -> RSAPrivateKey:
    """The RSA key of a PEM file; NoRsaKey."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        loaded = load_pem_private_key(text, password=None)
    except TypeError:
        raise NoRsaKey("this key is encrypted; only one without a password can be used") from None
    except (ValueError, UnsupportedAlgorithm):
        raise NoRsaKey("this is not a private key in PEM") from None
    if not isinstance(loaded, RSAPrivateKey):
        raise NoRsaKey("this is not an RSA key, and SNS signs with no other")
    return loaded


def _fingerprint(certificate: Certificate) -> str:
    from cryptography.hazmat.primitives.hashes import SHA256

    return certificate.fingerprint(SHA256()).hex()[:32]


def _pem(certificate: Certificate) -> str:
    from cryptography.hazmat.primitives.serialization import Encoding

    return certificate.public_bytes(Encoding.PEM).decode("ascii")
