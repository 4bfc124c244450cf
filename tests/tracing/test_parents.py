"""``traceparent`` as the W3C has it: what is not valid counts as absent."""

from __future__ import annotations

import pytest

from queuegate.gateway.tracing.spans import TraceParent, parent_of, parse_traceparent

TRACE = b"4bf92f3577b34da6a3ce929d0e0e4736"
SPAN = b"00f067aa0ba902b7"
GOOD = b"00-" + TRACE + b"-" + SPAN + b"-01"
PARENT = TraceParent(int(TRACE, 16), int(SPAN, 16), True)


def test_the_flag_says_whether_the_trace_is_sampled() -> None:
    assert parse_traceparent(GOOD) == PARENT
    assert parse_traceparent(GOOD[:-2] + b"00") == PARENT._replace(is_sampled=False)


def test_flags_that_are_not_known_are_not_looked_at() -> None:
    assert parse_traceparent(GOOD[:-2] + b"03") == PARENT
    assert parse_traceparent(GOOD[:-2] + b"fe") == PARENT._replace(is_sampled=False)


@pytest.mark.parametrize("more", [b"", b"-", b"-what comes next"])
def test_of_later_versions_the_known_parts_are_read(more: bytes) -> None:
    assert parse_traceparent(b"cc" + GOOD[2:] + more) == PARENT


@pytest.mark.parametrize(
    "header",
    [
        b"",
        b"ff" + GOOD[2:],
        GOOD + b"-",
        GOOD + b"-more",
        b"cc" + GOOD[2:] + b".more",
        GOOD[:-1],
        GOOD + b"0",
        GOOD.upper(),
        GOOD.replace(b"-", b"_"),
        GOOD.replace(TRACE, b"0" * 32),
        GOOD.replace(SPAN, b"0" * 16),
        GOOD.replace(TRACE, TRACE[1:]),
        GOOD.replace(b"4b", b"4g"),
        b"0" + GOOD,
        b"\xff" + GOOD,
        GOOD.replace(b"-01", b"-0x"),
    ],
)
def test_what_is_not_valid_is_none(header: bytes) -> None:
    assert parse_traceparent(header) is None


def test_blanks_around_it_do_not_count() -> None:
    assert parse_traceparent(b" \t" + GOOD + b" ") == PARENT


def test_two_are_none_and_several_states_are_one_list() -> None:
    given = (b"traceparent", GOOD)
    assert parent_of(
        [given, (b"host", b"x"), (b"tracestate", b"a=1"), (b"tracestate", b"b=2")]
    ) == (PARENT._replace(state="a=1,b=2"))
    assert parent_of([given, given]) is None
    assert parent_of([(b"tracestate", b"a=1")]) is None
