"""Keys and certificates for tests."""

from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)


def certificate_of(
    private_key: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey, address: str = ""
) -> str:
    """A certificate of this key, signed by itself, in PEM; for a server at that address, if there
    is one."""
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "sns.test")])
    begins = datetime.now(UTC) - timedelta(days=1)
    builder = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(private_key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begins)
        .not_valid_after(begins + timedelta(days=2))
    )
    if address:
        names = x509.SubjectAlternativeName([x509.IPAddress(ip_address(address))])
        authority = x509.BasicConstraints(ca=True, path_length=None)
        builder = builder.add_extension(names, False).add_extension(authority, True)
    certificate = builder.sign(private_key, hashes.SHA256())
    return certificate.public_bytes(Encoding.PEM).decode()


def write_pair(folder: Path, address: str = "127.0.0.1") -> tuple[Path, Path]:
    """Files with a new certificate, which is its own authority, and with its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    certificate_file, key_file = folder / "cert.pem", folder / "key.pem"
    certificate_file.write_text(certificate_of(key, address))
    key_file.write_text(pem_of(key))
    return certificate_file, key_file


def pem_of(
    private_key: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey, password: bytes | None = None
) -> str:
    """The key in PEM, encrypted if there is a password."""
    encryption = BestAvailableEncryption(password) if password else NoEncryption()
    return private_key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption).decode()
