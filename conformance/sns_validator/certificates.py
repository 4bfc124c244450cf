"""HTTPS in front of a gateway, with a certificate of an authority that lives as long as the run."""

from __future__ import annotations

import contextlib
import ssl
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

_PATIENCE_SECONDS = 30.0


class Proxy:
    """Hands GET requests on to `target`, which is set once the gateway runs."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.target = ""


def write_certificates(folder: Path, hosts: list[str]) -> tuple[Path, Path]:
    """(the authority's certificate, the server's key and certificate) as PEM files."""
    authority_key, server_key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    authority = _signed("Throwaway authority", authority_key, authority_key, [])
    server = _signed(hosts[0], server_key, authority_key, hosts)
    authority_file, server_file = folder / "authority.pem", folder / "server.pem"
    authority_file.write_bytes(authority.public_bytes(Encoding.PEM))
    private = server_key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    server_file.write_bytes(private + server.public_bytes(Encoding.PEM))
    return authority_file, server_file


def _signed(
    name: str,
    key: ec.EllipticCurvePrivateKey,
    issuer_key: ec.EllipticCurvePrivateKey,
    hosts: list[str],
) -> x509.Certificate:
    def named(text: str) -> x509.Name:
        return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, text)])

    begins = datetime.now(UTC) - timedelta(hours=1)
    builder = (
        x509.CertificateBuilder()
        .subject_name(named(name))
        .issuer_name(named("Throwaway authority"))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begins)
        .not_valid_after(begins + timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=not hosts, path_length=None), critical=True)
    )
    if hosts:
        names = x509.SubjectAlternativeName([x509.DNSName(host) for host in hosts])
        builder = builder.add_extension(names, critical=False)
    return builder.sign(issuer_key, hashes.SHA256())


@contextlib.contextmanager
def https_proxy(server_file: Path) -> Iterator[Proxy]:
    """A proxy on a free port of this machine, as long as the context."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            try:
                with urllib.request.urlopen(
                    proxy.target + self.path, timeout=_PATIENCE_SECONDS
                ) as response:
                    self._answer(response.status, response.headers, response.read())
            except urllib.error.HTTPError as error:
                with error:
                    self._answer(error.code, error.headers, error.read())

        def _answer(self, status: int, headers: Any, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", headers["Content-Type"])
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Say nothing: the verdicts speak for it."""

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(server_file)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    proxy = Proxy(server.server_address[1])
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield proxy
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
