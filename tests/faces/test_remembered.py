"""Caches of clients' input: many common values, no enormous one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from queuegate.gateway.faces.aws.sqs import sqs_messages
from queuegate.gateway.http.authentication import Authenticator
from queuegate.gateway.http.message_parsing import RequestHeads
from queuegate.gateway.operations.queues.queue_cache import QueueCache
from tests.faces.clients import authorization


def _authenticator() -> Authenticator:
    return Authenticator(mode="presence", accounts={}, account_id="000000000000", region="r")


def test_callers_by_their_header() -> None:
    authenticator = _authenticator()
    header = authorization("123456789012").encode()
    caller = authenticator.fast_caller({b"authorization": header}, "sqs", b"/", b"")
    assert caller is not None
    assert caller.account_id == "123456789012"
    assert authenticator.fast_caller({b"authorization": header}, "sqs", b"/", b"") is caller
    assert len(authenticator.by_head) == 1


def test_who_signed_for_another_service_takes_the_long_way() -> None:
    authenticator = _authenticator()
    for service in ("scheduler", "sns", "other"):
        header = authorization("123456789012", service=service).encode()
        for _ in range(2):
            assert authenticator.fast_caller({b"authorization": header}, "sqs", b"/", b"") is None


def test_what_is_no_signature_takes_the_long_way() -> None:
    authenticator = _authenticator()
    header = authorization("123456789012").encode()
    for _ in range(2):
        for odd in (header[:-1], header + b"0", header[:-1] + b"x", header + b" ", b"any", b""):
            assert authenticator.fast_caller({b"authorization": odd}, "sqs", b"/", b"") is None
        assert authenticator.fast_caller({b"authorization": header}, "sqs", b"/", b"") is not None


def test_a_long_header_of_a_known_caller_is_not_remembered() -> None:
    authenticator = _authenticator()
    header = authorization("123456789012").replace(", ", ", " + "Other=x, " * 100, 1)
    caller = authenticator.fast_caller({b"authorization": header.encode()}, "sqs", b"/", b"")
    assert caller is not None
    assert caller.account_id == "123456789012"
    assert not authenticator.by_head


def test_wanted_attributes() -> None:
    def want(*names: str) -> sqs_messages.ReceiveSelection:
        return sqs_messages.wanted({"MessageAttributeNames": list(names)}, is_query=False)

    assert want("remembered", "b") is want("remembered", "b")
    for names in (["n"] * 33, ["n" * 2049]):
        assert want(*names) is not want(*names)
        selection = want(*names).attributes
        assert selection is not None
        assert selection.of(f'{{"{names[0]}":1,"other":2}}') == {names[0]: 1}


@pytest.mark.parametrize(("before", "length", "after"), [(0, 512, 1), (0, 513, 0), (50_000, 60, 1)])
def test_queue_urls(before: int, length: int, after: int) -> None:
    queues = QueueCache(cast(Any, None))
    queue: Any = SimpleNamespace(queue_id=1, account_id="1", region="r", name="orders")
    queues.keep(queue)
    queues.by_url = {("1", "r", str(number)): queue for number in range(before)}
    url = "http://host/000000000000/orders"
    url = url.replace("host", "h" * (length - len(url) + 4))
    for _ in range(2):
        queues.remember("1", "r", url, queue)
    assert len(queues.by_url) == after
    # One that the cache does not have any more may have another's name.
    other: Any = SimpleNamespace(queue_id=2)
    queues.remember("1", "r", "http://h/1/other", other)
    assert len(queues.by_url) == after


def test_header_names() -> None:
    heads = RequestHeads()
    for number in range(5000):
        name = b"X-%d" % number
        assert heads.read(b"Host: h\r\n%b: v\r\n%b: v" % (name, name * 100)) == {b"host": b"h"}
    known = heads._kinds
    assert len(known) <= 4096
    # What somebody made up makes room for what comes later.
    assert b"X-4999" in known
    assert max(map(len, known)) <= 64
