"""The promises of every face, for every pair of a sending and a receiving face."""

from __future__ import annotations

import pytest

from tests.faces.clients import Refused
from tests.faces.promises.conftest import House, Pair
from tests.faces.promises.drivers import VISIBILITY_SECONDS, Absent, Kind, RestDriver

CONTENTS = (
    "hello",
    " ",
    "a line\r\n\tand \"another\" \\ <b>&amp;</b> 'quoted'",
    "ÄÖÜ ß \u4f60\u597d \u0645\u0631\u062d\u0628\u0627 \u1e9e e\u0301 \U0001f9ea\ufe0f \ufffd",
    '{"order": [1, 2.5, null, true], "of": "JSON"}',
    "ten bytes " * 20_000,
)


def test_what_is_sent_is_received_as_it_was(pair: Pair) -> None:
    for number, content in enumerate(CONTENTS):
        pair.send(content, f"g{number}")
    assert sorted(pair.drain(len(CONTENTS))) == sorted(map(pair.expected, CONTENTS))


def test_what_is_finished_never_comes_again(pair: Pair) -> None:
    pair.send("first", "a")
    pair.send("second", "b")
    given = pair.take()
    pair.finish(given)
    pair.server.advance(VISIBILITY_SECONDS + 1)
    sent = [pair.expected("first"), pair.expected("second")]
    sent.remove(given.content)
    assert pair.drain(1) == sent
    pair.server.advance(VISIBILITY_SECONDS + 1)
    assert pair.receive() is None


def test_what_is_received_is_hidden_until_it_is_given_back(pair: Pair) -> None:
    pair.send("work")
    given = pair.take()
    assert pair.receive() is None
    pair.release(given)
    assert pair.drain(1) == [pair.expected("work")]


def test_what_is_not_finished_in_time_comes_again(pair: Pair) -> None:
    pair.send("work")
    first = pair.take()
    pair.server.advance(VISIBILITY_SECONDS - 1)
    assert pair.receive() is None
    pair.server.advance(2)
    second = pair.take()
    assert second.content == first.content
    pair.finish(second)
    pair.server.advance(VISIBILITY_SECONDS + 1)
    assert pair.receive() is None


def test_a_paused_queue_gives_nothing_until_it_is_resumed(pair: Pair, house: House) -> None:
    rest = house.drivers["rest"]
    assert isinstance(rest, RestDriver)
    pause = f"/v1/queues/{pair.made.name}/pause"
    pair.send("first", "a")
    held = pair.take()
    rest.client.call("PUT", pause, status=204)
    pair.send("second", "b")
    assert pair.receive() is None
    pair.finish(held)
    rest.client.call("DELETE", pause, status=204)
    assert pair.drain(1) == [pair.expected("second")]


def test_both_count_what_is_there(pair: Pair) -> None:
    """Channels have metrics instead."""
    counted = set() if {"count"} <= {*pair.sender.lacks} & {*pair.receiver.lacks} else {0}
    assert pair.counts() == counted
    for number in range(3):
        pair.send(f"work {number}", f"g{number}")
    assert pair.counts() == {count + 3 for count in counted}
    given = pair.take()
    assert pair.counts() == {count + 3 for count in counted}
    pair.finish(given)
    assert pair.counts() == {count + 2 for count in counted}


def test_a_queue_that_one_removes_is_gone_for_the_other(pair: Pair, house: House) -> None:
    """Or is another one, for those that make what is not there: nothing of it comes again."""
    pair.send("work")
    able = [driver for driver in (pair.receiver, pair.sender) if "remove" not in driver.lacks]
    (able or house.makers(pair.made.kind))[0].remove(pair.made)
    if "remove" in pair.sender.lacks and pair.made.kind is not Kind.FIFO:
        pair.send("more work")
        return
    with pytest.raises(Absent):
        pair.send("more work")


def test_a_group_comes_in_order_and_others_go_on_beside_it(pair: Pair) -> None:
    """Plain queues have no groups, and promise no order."""
    if not pair.made.kind.has_groups:
        for number in range(3):
            pair.send(f"{number}")
        assert sorted(pair.drain(3)) == [pair.expected(f"{number}") for number in range(3)]
        return
    for number in range(3):
        pair.send(f"a{number}", "a")
        pair.send(f"b{number}", "b")
    held = pair.take()
    group, other = "ab" if held.content == pair.expected("a0") else "ba"
    assert held.content == pair.expected(f"{group}0")
    assert pair.drain(3) == [pair.expected(f"{other}{number}") for number in range(3)]
    pair.finish(held)
    assert pair.drain(2) == [pair.expected(f"{group}{number}") for number in (1, 2)]


REFUSES_AN_EMPTY_TEXT = {
    "aws": "SQS takes no empty body (docs/contract/sqs.md)",
    "simple": "its text is the body as it is",
    "text": "its payload is the body as it is",
}


def test_an_empty_text_is_a_text(pair: Pair) -> None:
    """But for those whose text is the body, which is never empty: then nothing is there."""
    if pair.sender.face in REFUSES_AN_EMPTY_TEXT:
        with pytest.raises(
            (AssertionError, Refused), match=r"MessageBody|needs a body|payload is empty"
        ):
            pair.send("")
        assert pair.counts() <= {0}
        return
    pair.send("")
    assert pair.drain(1) == [pair.expected("")]


@pytest.mark.parametrize("kind", Kind)
def test_what_a_face_cannot_send_is_refused_and_written_down(house: House, kind: Kind) -> None:
    for driver in house.drivers.values():
        if driver in house.senders(kind) or "send" in driver.lacks:
            continue
        assert driver.lacks["group"]
        made = house.new_queue(kind)
        with pytest.raises(AssertionError, match="group"):
            driver.send(made, "work")
        assert house.drivers["aws"].count(made) == 0
