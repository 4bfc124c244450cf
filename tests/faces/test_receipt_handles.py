"""Receipt handles: every row of the table, on both kinds of queue (docs/contract/sqs.md 2.6)."""

from __future__ import annotations

import pytest

from tests.faces.clients import Sqs
from tests.faces.servers import Server


class Leased:
    """A queue with one message that was received."""

    def __init__(self, sqs: Sqs, server: Server, kind: str) -> None:
        self.sqs = sqs
        self.server = server
        self.is_fifo = kind == "fifo"
        self.url = self.make("orders")
        sqs.send(self.url, **({"MessageGroupId": "g"} if self.is_fifo else {}))
        self.handle = self.receive()

    def make(self, name: str) -> str:
        """A queue of this kind."""
        return self.sqs.create_fifo(f"{name}.fifo") if self.is_fifo else self.sqs.create(name)

    def receive(self, seconds: int = 30) -> str:
        """The handle of the message, received now."""
        handle: str = self.sqs.receive(self.url, VisibilityTimeout=seconds)[0]["ReceiptHandle"]
        return handle

    def change(self, seconds: int, handle: str = "") -> None:
        self.sqs.call(
            "ChangeMessageVisibility",
            QueueUrl=self.url,
            ReceiptHandle=handle or self.handle,
            VisibilityTimeout=seconds,
        )

    def delete(self, handle: str = "") -> None:
        self.sqs.call("DeleteMessage", QueueUrl=self.url, ReceiptHandle=handle or self.handle)

    def is_hidden(self) -> bool:
        return self.sqs.counts(self.url) == (0, 1, 0)

    def is_gone(self) -> bool:
        return self.sqs.counts(self.url) == (0, 0, 0)


@pytest.fixture(params=["standard", "fifo"])
def leased(request: pytest.FixtureRequest, sqs: Sqs, server: Server) -> Leased:
    return Leased(sqs, server, request.param)


@pytest.fixture
def standard(sqs: Sqs, server: Server) -> Leased:
    return Leased(sqs, server, "standard")


@pytest.fixture
def fifo(sqs: Sqs, server: Server) -> Leased:
    return Leased(sqs, server, "fifo")


def _assert_expired(leased: Leased, handle: str) -> None:
    refused = leased.sqs.refusal("DeleteMessage", QueueUrl=leased.url, ReceiptHandle=handle)
    assert (refused.status, refused.code) == (400, "InvalidParameterValue")
    assert refused.text == (
        f"Value {handle} for parameter ReceiptHandle is invalid. Reason: The receipt handle has "
        "expired."
    )


def test_every_receive_has_a_new_handle(leased: Leased) -> None:
    leased.change(0)
    assert leased.receive() != leased.handle


def test_delete_in_flight(leased: Leased) -> None:
    leased.delete()
    assert leased.is_gone()


def test_delete_after_the_timeout_succeeds_on_a_standard_queue(standard: Leased) -> None:
    standard.server.advance(31)
    standard.delete()
    assert standard.is_gone()


def test_delete_after_the_timeout_is_refused_on_a_fifo_queue(fifo: Leased) -> None:
    fifo.server.advance(31)
    _assert_expired(fifo, fifo.handle)
    assert fifo.sqs.counts(fifo.url) == (1, 0, 0)


def test_an_old_handle_is_taken_on_a_standard_queue(standard: Leased) -> None:
    standard.server.advance(31)
    standard.receive()
    standard.delete()


def test_an_old_handle_has_expired_on_a_fifo_queue(fifo: Leased) -> None:
    fifo.server.advance(31)
    newer = fifo.receive()
    _assert_expired(fifo, fifo.handle)
    fifo.delete(newer)
    assert fifo.is_gone()


def test_delete_again(leased: Leased) -> None:
    leased.delete()
    leased.delete()


def test_delete_of_what_retention_has_taken(standard: Leased) -> None:
    standard.server.advance(345_601)
    standard.delete()


def test_an_extension_moves_the_deadline(leased: Leased) -> None:
    leased.change(120)
    leased.server.advance(60)
    assert leased.is_hidden()
    leased.delete()
    assert leased.is_gone()


def test_the_new_timeout_counts_from_the_call_and_is_not_kept(leased: Leased) -> None:
    leased.server.advance(20)
    leased.change(20)
    leased.server.advance(15)
    assert leased.is_hidden()
    leased.server.advance(6)
    leased.receive()
    leased.server.advance(25)
    assert leased.is_hidden()


def test_visibility_zero_shows_the_message_at_once(leased: Leased) -> None:
    leased.change(0)
    assert leased.sqs.counts(leased.url) == (1, 0, 0)
    leased.receive()


@pytest.mark.parametrize("after", ["expiry", "zero"])
def test_a_change_hides_a_visible_message_again_on_a_standard_queue(
    standard: Leased, after: str
) -> None:
    if after == "zero":
        standard.change(0)
    else:
        standard.server.advance(31)
    standard.change(30)
    assert standard.is_hidden()
    assert standard.sqs.receive(standard.url) == []


def test_a_change_of_a_deleted_message(leased: Leased) -> None:
    leased.delete()
    refused = leased.sqs.refusal(
        "ChangeMessageVisibility",
        QueueUrl=leased.url,
        ReceiptHandle=leased.handle,
        VisibilityTimeout=30,
    )
    assert (refused.status, refused.code) == (400, "InvalidParameterValue")
    assert refused.text.endswith(
        "Message does not exist or is not available for visibility timeout change."
    )


def test_more_than_twelve_hours_in_all_are_refused(leased: Leased) -> None:
    leased.change(600)
    leased.server.advance(60)
    refused = leased.sqs.refusal(
        "ChangeMessageVisibility",
        QueueUrl=leased.url,
        ReceiptHandle=leased.handle,
        VisibilityTimeout=43_200,
    )
    assert (refused.status, refused.code) == (400, "InvalidParameterValue")
    assert refused.text == (
        "Value 43200 for parameter VisibilityTimeout is invalid. Reason: Total VisibilityTimeout "
        "for the message is beyond the limit [43200 seconds]"
    )
    leased.change(43_100)


@pytest.mark.parametrize("seconds", [-1, 43_201])
def test_a_timeout_out_of_range_is_refused(leased: Leased, seconds: int) -> None:
    members = {"ReceiptHandle": leased.handle, "VisibilityTimeout": seconds}
    refused = leased.sqs.refusal("ChangeMessageVisibility", QueueUrl=leased.url, **members)
    assert (refused.status, refused.code) == (400, "InvalidParameterValue")
    assert leased.is_hidden()


@pytest.mark.parametrize("handle", ["garbage", "x" * 1024, "AQEB=", "%%%", "ż", "<&>\"'"])
@pytest.mark.parametrize("action", ["DeleteMessage", "ChangeMessageVisibility"])
def test_garbage_is_no_handle(leased: Leased, action: str, handle: str) -> None:
    timeout = {"VisibilityTimeout": 1} if action == "ChangeMessageVisibility" else {}
    refused = leased.sqs.refusal(action, QueueUrl=leased.url, ReceiptHandle=handle, **timeout)
    assert (refused.status, refused.code) == (404, "ReceiptHandleIsInvalid")
    assert refused.text == f'The input receipt handle "{handle}" is not a valid receipt handle.'
    assert leased.is_hidden()


def test_a_part_of_a_handle_is_none(leased: Leased) -> None:
    for wrong in (leased.handle[:-1], leased.handle + "A"):
        refused = leased.sqs.refusal("DeleteMessage", QueueUrl=leased.url, ReceiptHandle=wrong)
        assert (refused.status, refused.code) == (404, "ReceiptHandleIsInvalid")
    assert leased.is_hidden()


def test_a_handle_of_another_queue(leased: Leased) -> None:
    url = leased.make("others")
    refused = leased.sqs.refusal("DeleteMessage", QueueUrl=url, ReceiptHandle=leased.handle)
    assert (refused.status, refused.code) == (404, "ReceiptHandleIsInvalid")
    assert leased.is_hidden()


def test_a_handle_of_an_earlier_queue_of_the_same_name(leased: Leased) -> None:
    leased.sqs.call("DeleteQueue", QueueUrl=leased.url)
    leased.server.advance(61)
    leased.make("orders")
    refused = leased.sqs.refusal("DeleteMessage", QueueUrl=leased.url, ReceiptHandle=leased.handle)
    assert refused.code == "ReceiptHandleIsInvalid"


def test_handles_stay_below_1024_characters(leased: Leased) -> None:
    assert len(leased.handle) <= 1024
