"""Requests of the log client: retries, other gateways, and no unsafe call made twice."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest
from aiohttp import web

from queuegate.log import (
    AccessDenied,
    Closed,
    Conflict,
    LogClient,
    NewRecord,
    NotFound,
    Refused,
    Unavailable,
)
from tests.log_client.endpoints import Endpoint, hang_up, listening, saying
from tests.ports import reserved_port

ANSWER = {"records": [{"partition": 0, "offset": 0}]}


@pytest.fixture
async def endpoint() -> AsyncIterator[Endpoint]:
    async with listening() as found:
        yield found


async def test_a_lost_answer_is_asked_for_again_with_the_same_id(endpoint: Endpoint) -> None:
    again = {"records": [{"partition": 0, "offset": 0, "duplicate": True}]}
    endpoint.answers = [hang_up, saying({"error": "not now"}, 503), saying(again, 201)]
    async with LogClient(endpoint.url) as client:
        published = await client.publish("orders", "x", key="a")
        [first, second, third] = endpoint.requests
        assert first == second == third
        assert published.id == first[2]["records"][0]["id"]
        # The duplicate is our own request, and not somebody's record.
        assert not published.duplicate
        assert (await client.publish("orders", "x", id="mine")).duplicate


async def test_nobody_answers(unused_port: int) -> None:
    async with LogClient(f"http://127.0.0.1:{unused_port}", patience_seconds=0.1) as client:
        with pytest.raises(Unavailable, match="does not answer"):
            await client.logs()


async def test_another_gateway_is_asked(endpoint: Endpoint, unused_port: int) -> None:
    endpoint.answers = [saying(ANSWER, 201)]
    urls = [f"http://127.0.0.1:{unused_port}", endpoint.url]
    async with LogClient(urls) as client:
        await client.publish("orders", "x")
        await client.publish("orders", "y")
    assert len(endpoint.requests) == 2


async def test_not_now_ends_in_unavailable(endpoint: Endpoint) -> None:
    endpoint.answers = [saying({"error": "the disk is full"}, 503, **{"Retry-After": "9"})]
    async with LogClient(endpoint.url, patience_seconds=5) as client:
        with pytest.raises(Unavailable, match="answered 503: the disk is full"):
            await client.publish("orders", "x")
    assert len(endpoint.requests) == 1


@pytest.mark.parametrize(
    ("status", "kind"), [(400, Refused), (403, AccessDenied), (404, NotFound), (409, Conflict)]
)
async def test_a_refusal_has_a_kind(endpoint: Endpoint, status: int, kind: type[Refused]) -> None:
    endpoint.answers = [saying({"error": "no"}, status)]
    async with LogClient(endpoint.url) as client:
        with pytest.raises(Refused, match="no") as refused:
            await client.log("orders")
        assert type(refused.value) is kind
        assert refused.value.status == status


async def test_what_is_gone_may_be_so_by_a_request_whose_answer_was_lost(
    endpoint: Endpoint,
) -> None:
    endpoint.answers = [hang_up, saying({"error": "there is none"}, 404)]
    async with LogClient(endpoint.url) as client:
        await client.delete_log("orders")


async def test_many_go_in_parts(endpoint: Endpoint) -> None:
    async def stored(request: web.Request) -> web.Response:
        count = len(endpoint.requests[-1][2]["records"])
        return web.json_response({"records": ANSWER["records"] * count}, status=201)

    endpoint.answers = [stored]
    async with LogClient(endpoint.url) as client:
        assert len(await client.publish_many("orders", [NewRecord("x")] * 2_001)) == 2_001
        await client.publish_many("orders", [NewRecord("x" * 1_000_000)] * 7)
        # What is escaped is longer on the wire.
        await client.publish_many(
            "orders", [NewRecord('"' * 1_000_000), NewRecord("é" * 400_000)] * 2
        )
        assert await client.publish_many("orders", []) == []
    counts = [len(body["records"]) for _, _, body in endpoint.requests]
    assert counts == [1000, 1000, 1, 5, 2, 2, 2]
    ids = [one["id"] for _, _, body in endpoint.requests for one in body["records"]]
    assert len(set(ids)) == len(ids)


async def test_bytes_that_are_no_text_go_as_base64(endpoint: Endpoint) -> None:
    endpoint.answers = [saying(ANSWER, 201)]
    async with LogClient(endpoint.url, api_key="qg_1_x") as client:
        await client.publish("a b", b"\xff\x00")
        await client.publish("a b", "é".encode(), metadata={"n": "v"})
    assert endpoint.headers["X-Api-Key"] == "qg_1_x"
    [(_, path, first), (_, _, second)] = endpoint.requests
    assert path == "/v1/logs/a%20b/records"
    assert {**first["records"][0], "id": ""} == {
        "key": "",
        "id": "",
        "payload": "/wA=",
        "encoding": "base64",
    }
    assert second["records"][0]["payload"] == "é"
    assert second["records"][0]["metadata"] == {"n": "v"}


async def test_accounts_and_regions_are_named(endpoint: Endpoint) -> None:
    endpoint.answers = [saying({"logs": []})]
    async with LogClient(endpoint.url, account="111122223333", region="eu-west-1") as client:
        await client.logs("or")
    assert "=111122223333/20300101/eu-west-1/sqs/" in endpoint.headers["Authorization"]
    assert endpoint.requests[0][1] == "/v1/logs?prefix=or&max=100"
    with pytest.raises(Closed):
        await client.logs()


@pytest.mark.parametrize("url", ["queue:9324", "127.0.0.1:9324", "", "http://", "http://a:x"])
def test_a_url_is_looked_at_at_once(url: str) -> None:
    with pytest.raises(ValueError, match="is not the URL of a gateway, such as"):
        LogClient(url)


async def test_what_is_no_payload_is_refused_here(endpoint: Endpoint) -> None:
    async with LogClient(endpoint.url) as client:
        with pytest.raises(TypeError, match="str or bytes, and not dict"):
            await client.publish("orders", {"order": 42})  # type: ignore[arg-type]


async def test_silence_is_no_answer(endpoint: Endpoint) -> None:
    answered = asyncio.Event()

    async def silent(_: web.Request) -> web.Response:
        await answered.wait()
        return web.Response()

    endpoint.answers = [silent]
    async with LogClient(endpoint.url) as client:
        with pytest.raises(Unavailable, match=r"no answer|Timeout"):
            await client._calls.ask("GET", "orders", patience=0, read_seconds=0.05)
    answered.set()


@pytest.fixture
def unused_port() -> Iterator[int]:
    with reserved_port() as port:
        yield port
