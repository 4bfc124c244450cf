"""The short form of signatures agrees with the long one, or leaves the request to it."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuegate.gateway.http.message_parsing import RequestHeads
from queuegate.protocol import sigv4
from queuegate.protocol.sigv4 import READ, Credential, SignedHead, SignedRequest
from tests.protocol import contract

AT = "20261121T100000Z"
HEADERS = {
    "Host": "localhost:9324",
    "X-Amz-Target": "AmazonSQS.SendMessage",
    "Content-Type": "application/x-amz-json-1.0",
    "X-Amz-Date": AT,
    "User-Agent": "a  b",
}
NAMES = "content-type;host;x-amz-date;x-amz-target"


def head_of(names: str) -> SignedHead:
    return SignedHead(Credential("AKID", AT[:8], "us-east-1", "sqs", names, ""))


def request_of(lines: list[str], body: bytes) -> tuple[bytes, Mapping[bytes, bytes], bytes] | None:
    """As the fast path reads it, which here reads one header more."""
    heads = RequestHeads(READ | {b"user-agent", b"x-mine"})
    headers = heads.read("\r\n".join(lines).encode("latin-1"))
    return None if headers is None else (b"/", headers, body)


def short_form(head: SignedHead, lines: list[str], body: bytes) -> bytes | None:
    request = request_of(lines, body)
    return None if request is None else head.string_to_sign(*request)


def long_form(names: str, headers: dict[str, str], body: bytes) -> bytes:
    claim = Credential("AKID", AT[:8], "us-east-1", "sqs", names, "")
    lower = {name.lower(): value for name, value in headers.items()}
    canonical = sigv4.canonical_request(SignedRequest("POST", "/", "", lower, body), claim)
    at = lower["x-amz-date"]
    return sigv4.string_to_sign(canonical, at, claim.scope).encode("latin-1")


@given(st.text(st.characters(min_codepoint=32, max_codepoint=255)), st.binary(max_size=200))
def test_both_forms_sign_the_same(value: str, body: bytes) -> None:
    names = f"{NAMES};x-mine"
    # What is read as a header has no line ends.
    value = "".join(letter for letter in value if letter.isprintable())
    headers = HEADERS | {"X-Mine": value}
    lines = [f"{name}: {text}" for name, text in headers.items()]
    for order in (lines, lines[::-1]):
        found = short_form(head_of(names), order, body)
        assert found in (None, long_form(names, headers, body))
        assert found is not None or "  " in value


@pytest.mark.parametrize("case", contract.load("sigv4")["cases"], ids=lambda case: case["name"])
def test_requests_of_the_contract(case: dict[str, object]) -> None:
    headers, url = case["headers"], str(case["url"])
    assert isinstance(headers, dict)
    if case["method"] != "POST" or url.count("/") != 3 or not url.endswith("/"):
        return
    claim = sigv4.parse_authorization(headers["Authorization"])
    lines = [f"{name}:{text}" for name, text in headers.items()]
    host = url.split("/")[2]
    body = str(case["body"]).encode()
    found = short_form(SignedHead(claim), [*lines, f"Host: {host}"], body)
    assert found == str(case["string_to_sign"]).encode()


LINES = [f"{name}: {text}" for name, text in HEADERS.items()]


@pytest.mark.parametrize(
    ("names", "lines"),
    [
        ("host;x-amz-target", LINES),
        ("content-type;x-amz-date;x-amz-target", LINES),
        ("host;x-amz-date", LINES),
        (f"{NAMES};x-absent", LINES),
        (NAMES, [*LINES, "x-amz-date: 20261121T100001Z"]),
        (NAMES, [*LINES, "X-Amz-Content-Sha256: UNSIGNED-PAYLOAD"]),
        (f"{NAMES};user-agent", LINES),
        (f"{NAMES};x-mine", [*LINES, "x-mine: a\tb"]),
    ],
)
def test_what_takes_a_closer_look(names: str, lines: list[str]) -> None:
    assert short_form(head_of(names), lines, b"") is None
    plain = [line for line in LINES if not line.startswith("X-Amz-Target")]
    assert short_form(head_of("host;x-amz-date"), plain, b"") is not None
