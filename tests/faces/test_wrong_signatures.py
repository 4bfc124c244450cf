"""Answers to wrong signatures are delayed, by the address of the client."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from queuegate.gateway.faces.interface import Request, Response
from queuegate.gateway.http.app import SignatureDelays
from queuegate.gateway.operations.access.caller import RequestOrigin
from queuegate.storage.storage_errors import AccessDenied, InvalidSignature, UnrecognizedClient
from tests.faces.connections import Connection, request_bytes
from tests.faces.signing import Signer, Verifying
from tests.faces.test_signatures import WIRES, Wire
from tests.waiting import until

MANY = 90


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def wrong(address: str, refusal: Exception | None = None) -> Request:
    request = Request("GET", "/", b"", {}, b"body", "", "", "1", origin=RequestOrigin(address))
    request.refusal = refusal or InvalidSignature("no")
    return request


def held(delays: SignatureDelays, address: str, refusal: Exception | None = None) -> float:
    return round(delays.hold(wrong(address, refusal), Response(403, [], b"")), 3)


def test_an_address_gets_five_at_once_then_ten_a_second() -> None:
    clock = Clock()
    delays = SignatureDelays(1.0, clock)
    assert [held(delays, "10.0.0.1") for _ in range(8)] == [0, 0, 0, 0, 0, 0.1, 0.2, 0.3]
    assert held(delays, "10.0.0.2") == 0
    clock.now += 0.3
    assert held(delays, "10.0.0.1") == 0.1
    clock.now += 60
    assert held(delays, "10.0.0.1", UnrecognizedClient()) == 0


def test_no_answer_is_delayed_for_longer_than_said() -> None:
    clock = Clock()
    delays = SignatureDelays(0.25, clock)
    assert [held(delays, "a") for _ in range(20)][-5:] == [0.25] * 5
    clock.now += 0.85
    assert held(delays, "a") == 0
    assert not any(held(SignatureDelays(0.0, clock), "a") for _ in range(20))


def test_other_answers_are_not_delayed() -> None:
    delays = SignatureDelays(1.0, Clock())
    for _ in range(20):
        assert held(delays, "a", AccessDenied("no")) == 0
        answered = wrong("a")
        answered.refusal = None
        assert delays.hold(answered, Response(200, [], b"")) == 0
    assert held(delays, "a") == 0


def test_a_network_of_ipv6_is_one_client() -> None:
    delays = SignatureDelays(1.0, Clock())
    assert [held(delays, f"2001:db8::{n:x}") for n in range(1, 7)][-1] == 0.1
    assert held(delays, "2001:db8:0:1::1") == 0


def test_memory_and_delayed_answers_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("queuegate.gateway.http.app._MOST_ADDRESSES", 10)
    monkeypatch.setattr("queuegate.gateway.http.app._MOST_HELD", 2)
    delays = SignatureDelays(1.0, Clock())
    assert [held(delays, "a") for _ in range(7)][-2:] == [0.1, 0.2]
    response = Response(403, [], b"")
    assert delays.hold(wrong("a"), response) == 0
    assert response.headers == [(b"connection", b"close")]
    delays.release()
    request = wrong("a")
    assert delays.hold(request, Response(403, [], b"")) > 0
    assert request.body == b""
    for number in range(50):
        held(delays, f"10.0.0.{number}")
    assert len(delays._paid_at) == 10
    assert held(delays, "a") == 0


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Verifying]:
    settings = {
        "QUEUEGATE_SIGNATURE_DELAY_MS": "10000",
        "QUEUEGATE_TRUSTED_PROXIES": "127.0.0.1",
    }
    with Verifying(tmp_path_factory.mktemp("delaying"), **settings) as running:
        assert running.first.sqs("CreateQueue", QueueName="jobs").status == 200
        yield running


PAGE = Wire("sqs", "GET", "/_admin/clock", {}, b"")
ASKED = {
    "json": (WIRES["json"], 1),
    "json in two pieces": (WIRES["json"], 2),
    "scheduler": (WIRES["scheduler"], 1),
    "logs": (WIRES["logs"], 1),
    "text": (WIRES["text"], 1),
    "page": (PAGE, 1),
}


@pytest.mark.parametrize("name", ASKED)
def test_only_wrong_signatures_of_that_address_are_delayed(gateway: Verifying, name: str) -> None:
    """The last of many is delayed by seconds; what is asked after it is answered before it."""
    wire, pieces = ASKED[name]
    right = gateway.first.other(service=wire.service)
    bad = right.other(secret="wrong")
    number = 1 + 2 * list(ASKED).index(name)

    def ask(signer: Signer, address: int) -> Connection:
        signed = signer.sign(wire.method, wire.target, wire.headers, wire.body)
        connection = stack.enter_context(Connection(gateway.url))
        data = request_bytes(
            wire.method,
            wire.target,
            {**signed, "X-Forwarded-For": f"10.0.0.{address}"},
            wire.body,
        )
        if pieces > 1:
            connection.send(data[:20])
            gateway.read_on()
            data = data[20:]
        connection.send(data)
        return connection

    with contextlib.ExitStack() as stack:
        delayed = [ask(bad, number) for _ in range(MANY)]
        # The gateway reads its connections in any order.
        until(lambda: any(one.is_readable(0.0) for one in delayed))
        assert ask(bad, number + 1).answer().status in (401, 403)
        assert ask(right, number).answer().status not in (401, 403)
        assert not all(one.is_readable(0.0) for one in delayed)
        assert {one.answer().status for one in delayed} <= {401, 403}
        # One that disconnects is not waited for.
        ask(bad, number).close()
    until(lambda: gateway.metric("http_connections_active"), lambda found: found == 0)
