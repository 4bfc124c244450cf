"""The ``traceparent`` of a request: W3C Trace Context, sections 2.2 and 4.3."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

TRACEPARENT = b"traceparent"
TRACESTATE = b"tracestate"
HEADERS = frozenset({TRACEPARENT, TRACESTATE})

_PARTS = re.compile(
    rb"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?", re.DOTALL
).fullmatch
_SAMPLED = 1


class Parent(NamedTuple):
    """The span that called us, and whether its trace is recorded."""

    trace_id: int
    span_id: int
    is_sampled: bool
    state: str = ""
    """Its ``tracestate`` as it came: whoever reads it checks it."""


def parse(header: bytes, state: bytes = b"") -> Parent | None:
    """The parent; None for what is not valid, which counts as if nothing had been sent.

    Of versions to come the parts that we know are read, as the standard has it.
    """
    found = _PARTS(header.strip(b" \t"))
    if found is None:
        return None
    version, trace, span, flags, more = found.groups()
    if version == b"ff" or (version == b"00" and more is not None):
        return None
    trace_id, span_id = int(trace, 16), int(span, 16)
    if not trace_id or not span_id:
        return None
    return Parent(trace_id, span_id, bool(int(flags, 16) & _SAMPLED), state.decode("latin-1"))


def parent_of(headers: Iterable[tuple[bytes, bytes]]) -> Parent | None:
    """The parent by all headers of a request, whose names are lower case.

    Two ``traceparent`` are none; several ``tracestate`` are one list.
    """
    parents = []
    states = []
    for name, value in headers:
        if name == TRACEPARENT:
            parents.append(value)
        elif name == TRACESTATE:
            states.append(value)
    if len(parents) != 1:
        return None
    return parse(parents[0], b",".join(states))
