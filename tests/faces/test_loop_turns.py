"""No request holds the event loop for more than 20 ms: those that once did. `make fuzz` asks every
operation of every face (tests/fuzz/loop_turns.py)."""

from __future__ import annotations

import base64
import itertools
import json
import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from queuegate.gateway.configuration.values import FACE_NAMES
from queuegate.gateway.faces.text_face import ENDPOINTS as TEXT
from queuegate.protocol.scheduler_shapes import SCHEDULER
from tests.faces import everything
from tests.faces.clients import Sqs, new_account
from tests.faces.connections import Connection, fetch
from tests.faces.logs.client import Logs, record
from tests.faces.rest.client import Rest
from tests.faces.test_console_stream import FigureStream
from tests.fuzz.loop_meter import MOST_MS, Metered
from tests.fuzz.loop_turns import operations

_MIB = 1 << 20
_NEVER = "0 0 30 2 *"


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Metered]:
    with Metered(tmp_path_factory.mktemp("loop")) as running:
        yield running


def _is_short(gateway: Metered, ask: Callable[[], object], tries: int = 3) -> None:
    longest, where = gateway.longest_turn(ask, tries)
    assert longest < MOST_MS, where


@pytest.mark.parametrize("wire", ["query", "query-long", "json", "json-long"])
@pytest.mark.parametrize("letter", ['"', "\U0001f600"])
def test_ten_messages_of_a_mebibyte(gateway: Metered, wire: str, letter: str) -> None:
    with Sqs(wire, gateway.url) as sqs, Connection(gateway.url) as connection:
        queue = sqs.create()
        for _ in range(10):
            sqs.send(queue, letter * (_MIB // len(letter.encode())))
        members = {"QueueUrl": queue, "MaxNumberOfMessages": 10, "VisibilityTimeout": 0}

        def ask() -> None:
            connection.send(sqs.encode("ReceiveMessage", members))
            assert len(connection.answer().body) > 10 * _MIB

        _is_short(gateway, ask)


@pytest.mark.parametrize("partitions", [5, None])
def test_scattered_acks_of_a_log(gateway: Metered, partitions: int | None) -> None:
    """5,000 at once, of five partitions or of as many as there are records."""
    with Logs(gateway.url) as logs, ExitStack() as stack:
        logs.make(partitions=partitions)
        for number in range(5 if partitions is None else 30):
            keys = range(number * 1000, number * 1000 + 1000)
            logs.publish(*[record(key=f"k{key}") for key in keys])
        lines = [stack.enter_context(Connection(gateway.url)) for _ in range(5)]

        def ask() -> None:
            name = f"/v1/logs/orders/groups/g{next(names)}"
            logs.call("PUT", name, {"batch_size": 1000}, status=201)
            one = f"{name}/subscribers/one"
            session = logs.call("PUT", one, {})["session"]
            given = []
            for _ in lines:
                asked = {"session": session, "max": 1000}
                given += logs.call("POST", f"{one}/fetch", asked)["records"]
            random.Random(1).shuffle(given)
            assert len(given) == 1000 * len(lines)
            gateway.forget()
            for number, line in enumerate(lines):
                mine = given[number :: len(lines)]
                done = [{"receipt": one["receipt"], "do": "ack"} for one in mine]
                line.send(logs.encode("POST", f"{name}/deliveries", {"deliveries": done}))
            for line in lines:
                assert line.answer().status == 200

        names = itertools.count()
        _is_short(gateway, ask)


def _blob_of(size: int) -> str:
    return base64.b64encode(b"\xfb" * (size // 4 * 3)).decode()


@pytest.mark.parametrize("what", ["commit", "seek"])
def test_five_thousand_places_of_a_log(gateway: Metered, what: str) -> None:
    with Logs(gateway.url) as logs:
        logs.make(partitions=5000)
        logs.publish(*[record(key=f"k{key}") for key in range(1000)])
        logs.call("PUT", "/v1/logs/orders/groups/one", {}, status=201)
        places = [{"partition": number, "offset": 0} for number in range(5000)]
        random.Random(1).shuffle(places)

        def ask() -> None:
            answer = logs.ask("POST", f"/v1/logs/orders/groups/one/{what}", {"offsets": places})
            assert answer.status < 300, answer.text

        _is_short(gateway, ask)


@pytest.mark.parametrize("wire", ["query", "json"])
def test_an_attribute_of_seven_megabytes(gateway: Metered, wire: str) -> None:
    with Sqs(wire, gateway.url) as sqs, Connection(gateway.url) as connection:
        value = {"DataType": "Binary", "BinaryValue": bytes(4_800_000)}
        queue = sqs.create()
        members = {"QueueUrl": queue, "MessageBody": "x", "MessageAttributes": {"a": value}}
        request = sqs.encode("SendMessage", members)

        def ask() -> None:
            connection.send(request)
            assert connection.answer().status == 400

        _is_short(gateway, ask)


def test_the_first_cron_and_one_that_never_fires(gateway: Metered) -> None:
    """Once: the next one finds what this one imported."""
    with Rest(gateway.url) as rest:
        rest.call("POST", "/v1/previews", {"every": "5m"})
        body = {"cron": _NEVER}
        _is_short(gateway, lambda: rest.refusal("POST", "/v1/previews", body), tries=1)


@pytest.mark.parametrize("records", [1, 7])
def test_records_of_seven_megabytes(gateway: Metered, records: int) -> None:
    with Logs(gateway.url) as logs:
        logs.make()
        payload = _blob_of(6_700_000 // records)
        body = json.dumps(
            {"records": [record(payload, encoding="base64") for _ in range(records)]}
        ).encode()
        statuses = (201, 400, 413)

        def ask() -> None:
            assert logs.ask("POST", "/v1/logs/orders/records", raw=body).status in statuses

        _is_short(gateway, ask)


@pytest.mark.parametrize("size", [100, 4_000])
def test_a_search_of_two_thousand_messages(gateway: Metered, size: int) -> None:
    """Pages of 1,000 messages, and of 4 MB, each with ten attributes."""
    with Rest(gateway.url) as rest:
        name = rest.create()
        headers = {f"header-{number}": "v" * 20 for number in range(10)}
        one = {"message": "x" * size, "headers": headers}
        for _ in range(20):
            path = f"/v1/queues/{name}/messages"
            rest.call("POST", path, [one] * 100, status=201)
        query = f"/v1/queues/{name}/browse?text=x&attribute=header-9=absent"
        _is_short(gateway, lambda: rest.call("GET", query))


def test_a_search_that_nearly_matches_everywhere(gateway: Metered) -> None:
    with Rest(gateway.url) as rest:
        name = rest.create()
        for _ in range(10):
            rest.call(
                "POST", f"/v1/queues/{name}/messages", [{"message": "a" * 2_400}] * 100, status=201
            )
        text = "a" * 500 + "b" + "a" * 500
        query = f"/v1/queues/{name}/browse?text={text}"
        _is_short(gateway, lambda: rest.call("GET", query))


def test_an_overview_of_a_thousand_queues(gateway: Metered) -> None:
    with Sqs("json", gateway.url) as sqs:
        for number in range(1_000):
            sqs.create(f"q-{number:04}")

        def ask() -> None:
            with FigureStream(gateway.url, Authorization=f"Bearer {sqs.account}") as stream:
                assert len(stream.next()) == 1_000

        _is_short(gateway, ask)


def test_the_newest_thousand_lines_of_the_audit(tmp_path: Path) -> None:
    audit = tmp_path / "audit"
    with Metered(tmp_path, QUEUEGATE_AUDIT=str(audit)) as gateway:
        with Sqs("json", gateway.url) as sqs:
            for number in range(1_000):
                sqs.create(f"q-{number:04}")

        def ask() -> None:
            answer = fetch(gateway.url, "/_admin/audit?limit=1000")
            assert len(json.loads(answer.body)["lines"]) == 1_000

        _is_short(gateway, ask)


def test_the_fuzzer_asks_every_operation_of_every_face(gateway: Metered) -> None:
    made = everything.make(gateway, new_account())
    asked = {one.operation for one in operations(made, gateway.url)}
    wires = {f"{service}:{action} {wire}" for service, action, wire in everything.ACTIONS}
    schedules = {f"scheduler:{action}" for action in SCHEDULER.actions}
    faces = {f"{face}:{one.name}" for face, own in everything.ENDPOINTS.items() for one in own}
    texts = {f"text:{one.method}" for one in TEXT}
    assert wires | schedules | faces | texts | {"sts:GetCallerIdentity"} <= asked
    # All faces but the pages, which tests/tidy/test_access.py lists.
    names = {"logs" if name == "log" else name for name in FACE_NAMES}
    assert {"aws", *everything.ENDPOINTS, "text"} == names


def test_a_wrong_text_of_megabytes_is_refused_quickly(gateway: Metered) -> None:
    with Logs(gateway.url) as logs:
        one = {"receipt": "1.2.3.4", "do": "*" * 6_700_000}

        def ask() -> None:
            path = "/v1/logs/orders/groups/one/deliveries"
            assert logs.ask("POST", path, {"deliveries": [one]}).status == 400

        _is_short(gateway, ask)
