"""Requirements of one more face: two endpoints, a prefix and its words for refusals.

It is served by the real front door over a real socket, beside a face that answers in parts and one
of ASGI; none of them is the product's.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager
from types import SimpleNamespace
from typing import Any, TypeVar, cast

import httpx
import pytest
from msgspec import Struct

from queuegate.gateway.faces.aws.aws_face import AwsFace
from queuegate.gateway.faces.interface import (
    ConnectionHandler,
    ConnectionWriter,
    Face,
    Mount,
    Request,
    Response,
)
from queuegate.gateway.faces.json.json_endpoints import Answer, Call, Endpoints
from queuegate.gateway.faces.json.json_face import JsonFace, JsonFaceConfiguration
from queuegate.gateway.faces.json.json_openapi import FaceDescription
from queuegate.gateway.http.admission import Admission
from queuegate.gateway.http.app import App, AppOptions
from queuegate.gateway.http.authentication import Authenticator
from queuegate.gateway.http.fast_path import FastPath
from queuegate.gateway.operations.runtime.traffic import Traffic
from queuegate.gateway.operations.telemetry.series import Series
from queuegate.storage.storage_errors import QueueDoesNotExist, Rejected, Unavailable
from tests.faces import connections
from tests.faces.connections import Connection, request_bytes
from tests.faces.front_doors import ask, listening
from tests.waiting import until_so


class Book(Struct, forbid_unknown_fields=True):
    """A book."""

    pages: int


class Complaint(Struct):
    """The body of a refusal."""

    code: int
    message: str
    is_error: bool = True


endpoint = Endpoints("books", title=str)


@endpoint("PUT /made/up/{title}", "", refusals=())
async def write(call: Call, body: Book) -> Answer[Any]:
    """Write. Returns 201: A book."""
    if call.path.title == "gone":
        raise QueueDoesNotExist
    return Answer(201, {"title": call.path.title, "pages": body.pages})


@endpoint("GET /made/up/{title}", "", refusals=())
async def read(call: Call) -> Answer[Any]:
    """Read. Returns 200: A book."""
    return Answer(200, {"title": call.path.title, "reader": call.caller.account_id})


MANNER = JsonFaceConfiguration(
    name="made",
    prefix="/made",
    about=FaceDescription("Books", "Made up.", {"books": "Books."}, "Any.", Complaint),
    refused=lambda refusal, _: (418, f"so sorry: {type(refusal).__name__}"),
    worded=Complaint,
    sign_in="Who are you?",
)


MADE = (tuple(endpoint), MANNER)

Made = TypeVar("Made", bound=Face)


class Parts(Face):
    """Answers in parts, each when it is let through."""

    def __init__(self) -> None:
        self.gates = [asyncio.Event(), asyncio.Event()]
        self.has_ended = asyncio.Event()

    def most_bytes(self, _: Request) -> int:
        return 10

    async def answer(self, request: Request) -> Response:
        return Response(200, [(b"content-type", b"text/event-stream")], self._parts(request.body))

    async def _parts(self, body: bytes) -> AsyncGenerator[bytes, None]:
        try:
            yield b"begin " + body
            for gate in self.gates:
                await gate.wait()
                yield b" part"
        finally:
            self.has_ended.set()

    def turned_away(self, _: Request, refusal: Rejected | Unavailable) -> Response:
        return Response(413, [], type(refusal).__name__.encode())


class Echo(ConnectionHandler):
    """Says what it hears, in capitals."""

    def __init__(self) -> None:
        self.line: ConnectionWriter | None = None
        self.heard: list[str] = []

    def connection_made(self, line: ConnectionWriter) -> None:
        self.line = line
        line.write(b"Hello.")

    def data_received(self, data: bytes) -> None:
        assert self.line is not None
        self.line.write(data.upper())
        if data.endswith(b"bye"):
            self.line.end()

    def pause(self) -> None:
        self.heard.append("pause")

    def resume(self) -> None:
        self.heard.append("resume")

    def unread(self) -> None:
        self.heard.append("unread")

    def shutdown(self) -> None:
        assert self.line is not None
        self.line.write(b"closing")
        self.line.end()

    def lost(self) -> None:
        self.heard.append("lost")


class Takers(Face):
    """Gives each connection away."""

    def __init__(self) -> None:
        self.echoes: list[Echo] = []
        self.gate = asyncio.Event()
        self.gate.set()

    def most_bytes(self, _: Request) -> int:
        return 10

    async def answer(self, _: Request) -> Response:
        self.echoes.append(Echo())
        await self.gate.wait()
        headers = [(b"connection", b"Upgrade"), (b"upgrade", b"echo")]
        return Response(101, headers, self.echoes[-1])

    def turned_away(self, _: Request, refusal: Rejected | Unavailable) -> Response:
        return Response(403, [], type(refusal).__name__.encode())


class House:
    """A front door with these faces, on a port of its own."""

    def __init__(self) -> None:
        self.series = Series()
        self.parts: Parts | None = None
        self.takers = Takers()
        self.made_in: list[threading.Thread] = []
        self.connections: set[Any] = set()
        quotas = SimpleNamespace(asks=lambda: False)
        engine: Any = SimpleNamespace(
            series=self.series, queues=SimpleNamespace(by_url={}), quotas=quotas, faults=None
        )
        callers = Authenticator(mode="presence", accounts={}, account_id="7", region="r")
        self.admission = Admission(listens_on=["127.0.0.1"])
        aws = AwsFace(engine, callers, {})
        self.app = App(
            (
                Mount.below("/made", lambda: self._made(JsonFace(engine, callers, *MADE))),
                self._entrance(self._make_parts, "/parts"),
                self._entrance(lambda: self.takers, "/taken"),
                self._entrance(lambda: aws, ""),
            ),
            self.series,
            self.admission,
            AppOptions(None, None, 1000, access_log=False),
        )
        self._fast_path = FastPath(aws, callers, self.admission, access_log=False)

    def _entrance(self, make: Callable[[], Face], prefix: str) -> Mount:
        return Mount(lambda: self._made(make()), prefixes=(prefix,), label=lambda _: prefix or "/")

    def _made(self, face: Made) -> Made:
        self.made_in.append(threading.current_thread())
        return face

    def _make_parts(self) -> Parts:
        self.parts = Parts()
        return self.parts

    def open(self) -> AbstractAsyncContextManager[str]:
        """Listen; the URL."""
        return listening(self.app, self._fast_path, self.connections)


async def _ask(
    url: str, method: str, path: str, body: bytes = b"", *, authorization: str = "any"
) -> connections.Answer:
    headers = {"Authorization": authorization} if authorization else {}
    return await ask(url, method, path, headers, body)


async def test_endpoints_a_prefix_and_words_are_a_face() -> None:
    house = House()
    async with house.open() as url:
        written = await _ask(url, "PUT", "/made/up/a%20b", b'{"pages": 3.0}')
        assert (written.status, json.loads(written.body)) == (201, {"title": "a b", "pages": 3})
        read = await _ask(url, "GET", "/made/up/x")
        assert json.loads(read.body) == {"title": "x", "reader": "7"}
        assert read.headers["x-request-id"]
        options = await _ask(url, "OPTIONS", "/made/up/x")
        assert (options.status, options.headers["allow"]) == (204, "GET, HEAD, OPTIONS, PUT")
    key = ("PUT", "/made/up/{title}", "", 201)
    assert house.series.requests[key] == 1
    assert house.series.active_requests == house.series.traffic.held_bytes == 0


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "message"),
    [
        ("PUT", "/made/up/gone", b'{"pages": 1}', 418, "so sorry: QueueDoesNotExist"),
        ("PUT", "/made/up/x", b'{"leaves": 1}', 418, "so sorry: MalformedInput"),
        ("GET", "/made/up/x?y=1", b"", 418, "so sorry: MalformedInput"),
        ("PUT", "/made/up/x", b'{"pages": 1}' + b" " * 1000, 418, "so sorry: RequestTooLarge"),
        ("GET", "/made/x", b"", 404, "The path /made/x does not exist. See /made/openapi.json."),
        ("DELETE", "/made/up/x", b"", 405, "DELETE is not allowed here. Allowed are GET, HEAD, "
         "OPTIONS, PUT."),
    ],
)  # fmt: skip
async def test_it_refuses_in_its_own_words(
    method: str, path: str, body: bytes, status: int, message: str
) -> None:
    async with House().open() as url:
        answer = await _ask(url, method, path, body)
    assert answer.status == status
    complaint = {"code": status, "message": message, "is_error": True}
    assert json.loads(answer.body) == complaint


async def test_so_it_does_without_credentials_and_from_elsewhere() -> None:
    house = House()
    async with house.open() as url:
        answer = await _ask(url, "GET", "/made/up/x", authorization="")
        assert json.loads(answer.body)["message"] == "so sorry: AccessDenied"
        with Connection(url) as connection:
            headers = {"Host": connection.host, "Origin": "https://elsewhere.example"}
            connection.send(request_bytes("GET", "/made/up/x", headers))
            refused = await asyncio.to_thread(connection.answer)
        assert json.loads(refused.body)["message"] == "so sorry: AccessDenied"


async def test_it_has_a_document_of_its_own() -> None:
    async with House().open() as url:
        answer = await _ask(url, "GET", "/made/openapi.json", authorization="")
    document = json.loads(answer.body)
    assert set(document["paths"]) == {"/made/up/{title}", "/made/openapi.json"}
    assert set(document["paths"]["/made/up/{title}"]) == {"get", "put"}
    assert "Complaint" in document["components"]["schemas"]
    assert document["info"]["description"] == "Made up."
    assert "/v1" not in answer.text


@pytest.mark.parametrize(("path", "status"), [("/made/openapi.json", 200), ("/made/up/x", 418)])
async def test_links_of_other_sites_lead_to_its_document_alone(path: str, status: int) -> None:
    visit = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Authorization": "any"}
    async with House().open() as url:
        assert (await ask(url, "GET", path, visit)).status == status


async def test_faces_are_made_once_and_beside_the_event_loop() -> None:
    house = House()
    async with house.open() as url:
        for _ in range(2):
            await _ask(url, "GET", "/made/up/x")
            await _ask(url, "POST", "/taken", b"x" * 11)
    assert len(house.made_in) == 2
    assert threading.main_thread() not in house.made_in


async def test_parts_of_an_answer_are_sent_as_they_come() -> None:
    house = House()
    async with house.open() as url:
        with Connection(url) as connection:
            headers = {"Host": connection.host}
            connection.send(request_bytes("POST", "/parts", headers, b"body"))
            assert await asyncio.to_thread(connection.some, b"begin body")
            assert house.parts is not None
            assert house.series.active_requests == 1
            for gate in house.parts.gates:
                gate.set()
                assert await asyncio.to_thread(connection.some, b" part")
        await until_so(lambda: house.series.active_requests == 0)
        head = await _ask_head(url, "/parts")
    assert (head.status, head.body) == (200, b"")
    assert house.series.requests["POST", "/parts", "", 200] == 1


async def _ask_head(url: str, path: str) -> connections.Answer:
    with Connection(url) as connection:
        connection.send(request_bytes("HEAD", path, {"Host": connection.host}))
        return await asyncio.to_thread(connection.answer, to_head=True)


async def test_who_goes_away_ends_the_parts() -> None:
    house = House()
    async with house.open() as url:
        with Connection(url) as connection:
            connection.send(request_bytes("GET", "/parts", {"Host": connection.host}))
            assert await asyncio.to_thread(connection.some, b"begin")
        assert house.parts is not None
        await asyncio.wait_for(house.parts.has_ended.wait(), connections.PATIENCE_SECONDS)
        await until_so(lambda: house.series.active_requests == 0)
    assert house.series.requests["GET", "/parts", "", 200] == 1


async def test_a_face_says_how_much_it_takes() -> None:
    house = House()
    async with house.open() as url:
        found = await _ask(url, "POST", "/parts", b"x" * 11)
        assert (found.status, found.body) == (413, b"RequestTooLarge")
        house.series.traffic = Traffic(most_bytes=9)
        chunked = {"Transfer-Encoding": "chunked"}
        found = await ask(url, "POST", "/parts", chunked, b"a\r\n%b\r\n0\r\n\r\n" % (b"x" * 10))
        assert (found.status, found.body) == (413, b"Overloaded")
    assert house.series.requests["POST", "/parts", "", 413] == 2
    assert house.series.traffic.held_bytes == 0


TAKING = {"Connection": "Upgrade", "Upgrade": "echo"}


def _take(connection: Connection, behind: bytes = b"", **headers: str) -> str:
    """The head of an answer that gives the connection away, and its first words."""
    named = {"Host": connection.host, **TAKING, **headers}
    connection.send(request_bytes("GET", "/taken", named) + behind)
    head = connection.head()
    assert connection.some(b"Hello.")
    return head


async def test_a_face_may_give_the_connection_away() -> None:
    house = House()
    async with house.open() as url:
        with Connection(url) as connection:
            head = await asyncio.to_thread(_take, connection, b"already")
            assert head.startswith("HTTP/1.1 101 ")
            assert "upgrade: echo" in head
            assert "transfer-encoding" not in head
            assert "content-length" not in head
            assert await asyncio.to_thread(connection.some, b"ALREADY")
            assert house.series.active_requests == 0
            connection.send(b"POST / HTTP/1.1")
            assert await asyncio.to_thread(connection.some, b"POST / HTTP/1.1")
            connection.send(b"bye")
            assert await asyncio.to_thread(connection.some, b"BYE")
            assert await asyncio.to_thread(connection.ends)
        await until_so(lambda: house.takers.echoes[0].heard == ["lost"])
    assert house.series.requests["GET", "/taken", "", 101] == 1
    assert house.series.traffic.held_bytes == house.series.traffic.connections == 0


async def test_a_draining_server_tells_the_taker() -> None:
    house = House()
    async with house.open() as url:
        with Connection(url) as connection:
            await asyncio.to_thread(_take, connection)
            [one] = house.connections
            one.shutdown()
            assert await asyncio.to_thread(connection.some, b"closing")
            assert await asyncio.to_thread(connection.ends)
        await until_so(lambda: house.takers.echoes[0].heard == ["lost"])


async def test_a_taker_that_comes_while_the_server_drains_is_told() -> None:
    """On either way: the first request for a face takes the long one."""
    house = House()
    async with house.open() as url:
        for _ in range(2):
            house.takers.gate.clear()
            house.takers.echoes.clear()
            with Connection(url) as connection:
                connection.send(request_bytes("GET", "/taken", {"Host": connection.host}))
                await until_so(lambda: house.takers.echoes)
                [one] = house.connections
                one.shutdown()
                house.takers.gate.set()
                assert await asyncio.to_thread(connection.head)
                assert await asyncio.to_thread(connection.some, b"Hello.closing")
                assert await asyncio.to_thread(connection.ends)
            await until_so(lambda: not house.connections)


async def test_a_taker_hears_that_nobody_reads() -> None:
    house = House()
    async with house.open() as url:
        with Connection(url) as connection:
            await asyncio.to_thread(_take, connection)
            [one] = house.connections
            one.unread_seconds = 0.05
            [echo] = house.takers.echoes
            assert echo.line is not None
            echo.line.write(b"x" * 50_000_000)
            assert echo.line.unsent_bytes() > 1_000_000
            await until_so(lambda: echo.heard == ["pause", "unread", "lost"])
    assert house.series.traffic.unread_closed == 1
    assert house.series.traffic.held_bytes == 0


async def test_a_page_of_another_site_is_given_nothing() -> None:
    house = House()
    async with house.open() as url:
        with Connection(url) as connection:
            named = {"Host": connection.host, **TAKING, "Origin": "https://elsewhere.example"}
            connection.send(request_bytes("GET", "/taken", named))
            assert (await asyncio.to_thread(connection.answer)).status == 403
    assert not house.takers.echoes


async def test_a_taker_whose_client_left_before_the_answer_is_told() -> None:
    house = House()
    async with house.open() as url:
        with Connection(url) as connection:
            # Faces are opened by their first request.
            await asyncio.to_thread(_take, connection)
        house.takers.gate.clear()
        with Connection(url) as connection:
            connection.send(request_bytes("GET", "/taken", {"Host": connection.host}))
            await until_so(lambda: len(house.takers.echoes) == 2)
            connection.reset()
        await until_so(lambda: not house.connections)
        house.takers.gate.set()
        await until_so(lambda: house.takers.echoes[1].heard == ["lost"])
    assert house.series.active_requests == house.series.traffic.held_bytes == 0


async def test_another_asgi_server_can_serve_it() -> None:
    house = House()
    transport = httpx.ASGITransport(cast(Any, house.app), raise_app_exceptions=False)
    headers = {"Authorization": "any"}
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost:1") as client:
        written = await client.put("/made/up/a%20b", content=b'{"pages": 3}', headers=headers)
        assert (written.status_code, written.json()) == (201, {"title": "a b", "pages": 3})
        read = await client.get("/made/up/x", headers=headers)
        assert int(read.headers["content-length"]) == len(read.content)
        assert (await client.options("/made/up/x", headers=headers)).status_code == 204
        assert (await client.head("/parts")).content == b""
        assert (await client.post("/parts", content=b"x" * 11)).status_code == 413
        stranger = await client.get("/made/up/x", headers={"Host": "elsewhere.example"})
        assert (stranger.status_code, stranger.json()["code"]) == (418, 418)
        page = {"Origin": "https://elsewhere.example"}
        assert (await client.get("/made/up/x", headers=page)).status_code == 418
        assert house.parts is not None
        for gate in house.parts.gates:
            gate.set()
        assert (await client.post("/parts", content=b"body")).content == b"begin body part part"
        taken = await client.get("/taken")
        assert (taken.status_code, "Queuegate's own server" in taken.text) == (501, True)
    assert house.takers.echoes[0].heard == ["lost"]
    assert house.series.requests["PUT", "/made/up/{title}", "", 201] == 1
    assert house.series.active_requests == house.series.traffic.held_bytes == 0


async def test_parts_for_http_1_0_end_with_the_connection() -> None:
    """Such clients know neither chunks nor interim answers."""
    house = House()
    async with house.open() as url:
        with Connection(url) as connection:
            headers = {"Host": connection.host, "Expect": "100-continue", "Content-Length": "4"}
            connection.send(request_bytes("POST", "/parts", headers, version="1.0"))
            await until_so(lambda: house.parts is not None)
            connection.send(b"body")
            for gate in house.parts.gates if house.parts else ():
                gate.set()
            whole = await asyncio.to_thread(connection.rest)
    head, _, body = whole.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 ")
    assert b"chunked" not in head
    assert body == b"begin body part part"
