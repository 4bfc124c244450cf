"""Keys and certificates for tests."""

from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)


def certificate_of(private_key: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey) -> str:
    """A certificate of this key, signed by itself, in PEM."""
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "sns.test")])
    begins = datetime.now(UTC) - timedelta(days=1)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(private_key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begins)
        .not_valid_after(begins + timedelta(days=2))
        .sign(private_key, hashes.SHA256())
    )
    return certificate.public_bytes(Encoding.PEM).decode()


def pem_of(
    private_key: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey, password: bytes | None = None
) -> str:
    """The key in PEM, encrypted if there is a password."""
    encryption = BestAvailableEncryption(password) if password else NoEncryption()
    return private_key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption).decode()
