"""Addresses that deliveries may reach, and the proof of their identity."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from pathlib import Path
from typing import Any

import pytest

from queuegate.scheduler.webhook_client import WebHooks, make_context
from tests.protocol.certificates import write_pair
from tests.scheduler.endpoints import Endpoint, answer
from tests.scheduler.webhook_store import WebHookStore


async def deliver_to(hooks: WebHookStore, url: str, **options: object) -> str | None:
    """The error of one attempt; None: it was delivered."""
    await hooks.add(await hooks.subscribe(url), url, "a")
    worker = hooks.worker(**options)
    assert await worker.run_once() == 1
    await worker.stop()
    rows = await hooks.rows()
    return rows[0]["last_error"] if rows else None


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "127.0.0.2",
        "localhost",
        "0.0.0.0",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "[64:ff9b::127.0.0.1]",
        "0x7f000001",
        "0177.0.0.1",
        "169.254.169.254",
        "10.255.255.255",
    ],
)
async def test_private_addresses_are_never_connected_to(
    hooks: WebHookStore, endpoint: Endpoint, host: str
) -> None:
    error = await deliver_to(hooks, f"http://{host}:{endpoint.port}/hook", allow_private=False)
    assert error is not None
    assert "private address" in error or "not a URL" in error
    assert (await hooks.row())["state"] == "exhausted"
    assert endpoint.connections == 0


async def test_a_name_is_checked_when_it_is_used(
    hooks: WebHookStore, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever else it resolves to, and whatever it resolved to before."""
    asked: list[str] = []

    def both(host: str, port: int, *rest: object, **more: object) -> list[object]:
        asked.append(host)
        kind = (socket.AF_INET, socket.SOCK_STREAM, 6, "")
        return [(*kind, ("127.0.0.1", port)), (*kind, ("169.254.169.254", port))]

    monkeypatch.setattr("queuegate.scheduler.webhook_client.socket.getaddrinfo", both)
    url = f"http://hooks.example:{endpoint.port}/"
    error = await deliver_to(hooks, url, allow_private=False)
    assert error is not None
    assert "private address" in error
    assert asked == ["hooks.example"]
    assert endpoint.connections == 0


async def test_names_that_nobody_answers_for_keep_no_other_name_waiting(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A default worker has up to 192 requests to endpoints in flight of which nothing was heard."""
    look_up, over = socket.getaddrinfo, threading.Event()

    def slow(host: str, *rest: Any, **more: Any) -> Any:
        if host.endswith(".silent.example"):
            over.wait(30)
            raise OSError("nobody answered")
        return look_up(host, *rest, **more)

    monkeypatch.setattr("queuegate.scheduler.webhook_client.socket.getaddrinfo", slow)
    client = WebHooks(make_context(None), timeout_seconds=5.0, allow_private=True)
    silent = [
        asyncio.create_task(client.post(f"http://{number}.silent.example/", {}, b"a"))
        for number in range(192)
    ]
    try:
        await asyncio.wait(silent, timeout=0)
        outcome = await client.post(f"http://localhost:{endpoint.port}/hook", {}, b"a")
    finally:
        over.set()
        await asyncio.gather(*silent)
        await client.close()
    assert outcome.is_delivered


async def test_private_addresses_may_be_allowed(hooks: WebHookStore, endpoint: Endpoint) -> None:
    assert await deliver_to(hooks, f"http://localhost:{endpoint.port}/hook") is None
    assert len(endpoint.requests) == 1


async def test_proxies_of_the_environment_are_not_used(
    hooks: WebHookStore, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    assert await deliver_to(hooks, endpoint.url) is None


@pytest.mark.parametrize(
    ("address", "is_known", "error"),
    [
        ("127.0.0.1", True, None),
        ("127.0.0.1", False, "the certificate is not trusted"),
        ("127.0.0.9", True, "the certificate is not trusted"),
    ],
)
async def test_certificates_are_verified(
    hooks: WebHookStore, tmp_path: Path, address: str, is_known: bool, error: str | None
) -> None:
    certificate, key = write_pair(tmp_path, address)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    async with Endpoint(answer(200)).listening(context) as endpoint:
        found = await deliver_to(hooks, endpoint.url, ca_file=certificate if is_known else None)
        assert found == error or (error and found and found.startswith(error))
        assert len(endpoint.requests) == (error is None)
