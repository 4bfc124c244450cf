"""The authenticator gets all that a signature covers, whatever path a request takes."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

from queuegate.gateway.configuration.settings import Settings
from queuegate.gateway.faces.aws.aws_face import AwsFace
from queuegate.gateway.faces.interface import CredentialRule, Request
from queuegate.gateway.http.admission import Admission
from queuegate.gateway.http.app import App, AppOptions
from queuegate.gateway.http.fast_path import FastPath
from queuegate.gateway.metrics.scraping import MetricsPage
from queuegate.gateway.operations.access.caller import Caller
from queuegate.gateway.operations.runtime.siblings import Siblings
from queuegate.gateway.operations.telemetry.series import Series
from queuegate.gateway.process.gateway_process import mounts_of
from queuegate.storage.storage_errors import AccessDenied
from tests.faces.clients import authorization
from tests.faces.front_doors import ask, listening

JSON = {"Content-Type": "application/x-amz-json-1.0"}
SEND = {**JSON, "X-Amz-Target": "AmazonSQS.SendMessage"}
FORM = {"Content-Type": "application/x-www-form-urlencoded"}
PRESIGNED = "X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=a%2Fb&X-Amz-Signature=0"
OF_THE_SCHEDULER = {"Authorization": authorization("1", service="scheduler")}


class Signed(NamedTuple):
    """The parts of a request that a signature covers."""

    method: str
    path: str
    query: str
    headers: list[tuple[bytes, bytes]]
    body: bytes


class Recorder:
    """Writes down what it is asked, and lets nobody in."""

    def __init__(self) -> None:
        self.asked: list[Signed] = []
        self.fast: list[Signed] = []

    def caller(
        self,
        request: Request,
        params: Mapping[str, str],
        resource: str = "",
        *,
        may_be_anonymous: bool = False,
        wants: CredentialRule = CredentialRule.CREDENTIALS,
    ) -> Caller:
        headers = list(request.raw_headers)
        query = request.query.decode()
        self.asked.append(Signed(request.method, request.raw_path, query, headers, request.body))
        raise AccessDenied(f"{len(params)} {resource} {may_be_anonymous} {wants}")

    def claimed(self, *_: object) -> str:
        return ""

    reads = frozenset({b"x-other"})

    def fast_caller(
        self, headers: Mapping[bytes, bytes], service: str, path: bytes, body: bytes
    ) -> None:
        self.fast.append(Signed("POST", path.decode(), "", [*headers.items()], body))
        assert (headers[b"authorization"], service) == (b"any", "sqs")


class Door:
    """The front door with the product's own faces, and this authenticator."""

    def __init__(self) -> None:
        self.recorder = Recorder()
        series = Series()
        rules = SimpleNamespace(purge_interval_seconds=0)
        engine: Any = SimpleNamespace(
            series=series,
            queues=SimpleNamespace(by_url={}),
            quotas=None,
            signer=None,
            database=None,
            rules=rules,
            siblings=Siblings(),
        )
        admission = Admission(listens_on=["127.0.0.1"])
        aws = AwsFace(engine, self.recorder, {})
        settings = Settings(region="r", faces=("rest", "aws"), auth="none", ephemeral=True)
        faces = mounts_of(aws, settings, MetricsPage(engine, None, 0))
        self._app = App(faces, series, admission, AppOptions(None, None, 10_000, access_log=False))
        self._fast_path = FastPath(aws, self.recorder, admission, access_log=False)

    async def ask(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes = b""
    ) -> None:
        async with listening(self._app, self._fast_path) as url:
            # The fast path takes hosts that have been let in before.
            await ask(url, "GET", "/v1/x", {})
            self.recorder.asked.clear()
            answer = await ask(url, method, target, headers, body)
        assert answer.status in (400, 403)


@pytest.mark.parametrize(
    ("method", "target", "headers", "body"),
    [
        ("POST", "/", SEND, b'{"QueueUrl": "q"}'),
        ("POST", "/000000000000/a%20b?c=%64&c=e+f", SEND, b'{"QueueUrl": "q"}'),
        ("POST", "/000000000000/q", FORM, b"Action=SendMessage&MessageBody=%20x"),
        ("GET", "/?Action=ListQueues&" + PRESIGNED, {}, b""),
        ("POST", "/?" + PRESIGNED, FORM, b"Action=ListQueues&Version=2012-11-05"),
        ("PUT", "/v1/queues/a%2Fb?x=%20", {}, b'{"type": "fifo"}'),
        ("GET", "/v1/queues", {}, b""),
        ("POST", "/schedules/a%2Fb?c=d", {}, b'{"Target": {}}'),
        ("DELETE", "/x/y%20z?c=d", OF_THE_SCHEDULER, b""),
        ("GET", "/_admin/outbox?limit=%31", {}, b""),
    ],
)
async def test_all_of_it_arrives(
    method: str, target: str, headers: dict[str, str], body: bytes
) -> None:
    door = Door()
    sent = {"Authorization": "any", **headers, "X-Mine": "1", "x-mine": "2", "x-OTHER": "3"}
    await door.ask(method, target, sent, body)
    path, _, query = target.partition("?")
    [found] = door.recorder.asked
    assert found[:3] == (method, path, query)
    assert found.body == body
    wanted = [(name.lower().encode(), value.encode()) for name, value in sent.items()]
    assert [header for header in found.headers if header in wanted] == wanted
    assert b"host" in dict(found.headers)
    # What the fast path leaves alone is asked again on the long way, with the same.
    is_hot = target == "/" and headers == SEND
    assert len(door.recorder.fast) == is_hot
    for asked in door.recorder.fast:
        read = (b"host", b"content-length", b"content-type", b"authorization", b"x-other")
        there = [(name, value) for name, value in found.headers if name in (*read, b"x-amz-target")]
        assert asked == found._replace(headers=there)
