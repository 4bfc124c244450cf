"""Addresses of the certificates with which receivers of SNS messages verify signatures."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from starlette.routing import Router

from queuegate.gateway.operations.topics.message_signing import EnvelopeSigner
from queuegate.gateway.pages.public_pages import certificate_routes
from queuegate.storage.database import Database
from tests.faces.connections import fetch
from tests.faces.servers import Server
from tests.waiting import until

NAMES = ("/SimpleNotificationService.pem", "/v1/cert")
LABEL = 'path="/SimpleNotificationService"'


def current(server: Server) -> str:
    """Return the certificate, as a client that repeats what was answered 503."""
    answer = until(lambda: fetch(server.url, NAMES[0]), lambda found: found.status != 503)
    assert answer.status == 200, answer.text
    return answer.text


def page_of(certificate: str) -> str:
    loaded = x509.load_pem_x509_certificate(certificate.encode())
    return f"/SimpleNotificationService-{loaded.fingerprint(hashes.SHA256()).hex()[:32]}.pem"


def test_the_certificate_is_served_to_anybody(server: Server) -> None:
    certificate = current(server)
    for name in (*NAMES, page_of(certificate)):
        answer = fetch(server.url, name)
        assert (answer.status, answer.text) == (200, certificate)
        assert answer.headers["content-type"] == "application/x-pem-file"
        assert fetch(server.url, name, "POST").status == 405


@pytest.mark.parametrize(
    "page",
    [
        "/SimpleNotificationService-" + "0" * 32 + ".pem",
        "/SimpleNotificationService-" + "A" * 32 + ".pem",
        "/SimpleNotificationService-0.pem",
        "/SimpleNotificationService-%00.pem",
        "/SimpleNotificationService-" + "%F0%9F%98%80" * 32 + ".pem",
        "/SimpleNotificationService-" + "0" * 5000 + ".pem",
        "/SimpleNotificationService-" + "0" * 32,
        "/SimpleNotificationService",
        "/SimpleNotificationService-a/b.pem",
    ],
)
def test_other_certificates_are_not_found(server: Server, page: str) -> None:
    answer = fetch(server.url, page)
    assert answer.status == 404
    assert answer.headers["content-type"].startswith("text/plain")


def test_their_names_as_labels_do_not_grow(server: Server) -> None:
    for number in range(3):
        fetch(server.url, f"/SimpleNotificationService-{number:032x}.pem")
        fetch(server.url, f"/SimpleNotificationService/{number}")
    text = server.metrics("http_requests")
    lines = [line for line in text.splitlines() if "SimpleNotification" in line]
    assert lines
    assert all(LABEL in line for line in lines)
    assert f'http_requests_total{{method="GET",{LABEL},status="404"}}' in text


def test_workers_that_start_together_serve_one_certificate() -> None:
    with Server("--workers", "3") as server, ThreadPoolExecutor(12) as pool:
        assert len(set(pool.map(lambda _: current(server), range(12)))) == 1


async def get(database: Database, page: str) -> httpx.Response:
    """One answer of the pages alone, on this database."""
    signer = EnvelopeSigner(database)
    transport = httpx.ASGITransport(Router(certificate_routes(signer)))
    async with httpx.AsyncClient(transport=transport, base_url="http://gateway") as client:
        answer = await client.get(page)
    await signer.close()
    return answer


@pytest.mark.parametrize("page", [*NAMES, "/SimpleNotificationService-" + "0" * 32 + ".pem"])
async def test_a_database_that_is_away_is_503(
    database: Database, page: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = await get(Database(database.dsn), page)
    monkeypatch.setattr("queuegate.gateway.pages.public_pages._PATIENCE_SECONDS", 0.1)
    async with database.transaction() as tx:
        await tx.execute("LOCK TABLE settings IN ACCESS EXCLUSIVE MODE")
        silent = await get(database, page)
    for answer in (closed, silent):
        assert answer.status_code == 503
        assert answer.headers["retry-after"] == "1"
        assert answer.text == "The database is not available at the moment.\n"


def test_a_gateway_that_signs_nothing_loads_no_cryptography() -> None:
    code = (
        "import sys, queuegate.gateway.process.gateway_process; "
        "import queuegate.gateway.pages.operator_pages; "
        "sys.exit('cryptography' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
