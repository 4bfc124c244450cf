from dataclasses import replace
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any
from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuegate.protocol import sigv4
from queuegate.protocol.malformed import Malformed
from queuegate.protocol.query_wire import parse_form
from tests.protocol import contract

CASES = contract.load("sigv4")["cases"]
NOW = datetime(2026, 11, 21, 10, 0, tzinfo=UTC)
HEADER = CASES[0]["headers"]["Authorization"]


def _read(case: dict[str, Any]) -> tuple[sigv4.SignedRequest, sigv4.Credential, str]:
    """The request as a server sees it, its claim and its time of signing."""
    url = urlsplit(case["url"])
    headers = {name.lower(): value for name, value in case["headers"].items()}
    headers["host"] = url.netloc
    body = case["body"].encode()
    request = sigv4.SignedRequest(case["method"], url.path, url.query, headers, body)
    params = parse_form(url.query.encode())
    claim = sigv4.parse_presigned(params) or sigv4.parse_authorization(headers["authorization"])
    return request, claim, sigv4.request_timestamp(headers, params)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_requests_of_the_contract(case: dict[str, Any]) -> None:
    request, claim, timestamp = _read(case)
    assert (claim.access_key, claim.region, claim.service) == (
        case["access_key"],
        case["region"],
        case["service"],
    )
    canonical = sigv4.canonical_request(request, claim)
    assert canonical == case["canonical_request"]
    assert sigv4.string_to_sign(canonical, timestamp, claim.scope) == case["string_to_sign"]
    assert sigv4.verify(request, claim, case["secret_key"], timestamp, NOW) == "valid"


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_any_change_is_a_mismatch(case: dict[str, Any]) -> None:
    request, claim, timestamp = _read(case)
    secret = case["secret_key"]
    changed = [
        replace(request, method="PUT"),
        replace(request, path=request.path + "x"),
        replace(request, query=request.query + "&x=1"),
        replace(request, headers={**request.headers, "host": "elsewhere"}),
        replace(request, body=request.body + b" "),
    ]
    for other in changed:
        assert sigv4.verify(other, claim, secret, timestamp, NOW) == "mismatch"
    assert sigv4.verify(request, claim, secret + "x", timestamp, NOW) == "mismatch"
    forged = claim._replace(region="eu-west-1")
    assert sigv4.verify(request, forged, secret, timestamp, NOW) == "mismatch"
    unsigned_host = claim._replace(signed_headers="x-amz-date")
    assert sigv4.verify(request, unsigned_host, secret, timestamp, NOW) == "mismatch"


def test_signature_in_a_header_is_good_for_a_quarter_of_an_hour() -> None:
    request, claim, timestamp = _read(CASES[0])

    def verdict(seconds: int) -> str:
        now = NOW + timedelta(seconds=seconds)
        return sigv4.verify(request, claim, CASES[0]["secret_key"], timestamp, now)

    assert [verdict(seconds) for seconds in (-900, 900)] == ["valid", "valid"]
    assert [verdict(seconds) for seconds in (-901, 901)] == ["skewed", "skewed"]


def test_presigned_url_is_good_until_it_expires() -> None:
    case = next(case for case in CASES if case["name"] == "sqs-presigned-get")
    request, claim, timestamp = _read(case)
    assert claim.expires_seconds == 3600
    for seconds, expected in ((3600, "valid"), (3601, "skewed"), (-901, "skewed")):
        now = NOW + timedelta(seconds=seconds)
        assert sigv4.verify(request, claim, case["secret_key"], timestamp, now) == expected


def test_date_of_the_scope_must_be_that_of_the_signature() -> None:
    request, claim, _ = _read(CASES[0])
    now = datetime(2026, 11, 22, tzinfo=UTC)
    timestamp = "20261122T000000Z"
    assert sigv4.verify(request, claim, CASES[0]["secret_key"], timestamp, now) == "skewed"


def test_unsigned_payload_needs_no_hash_of_the_body() -> None:
    request, claim, timestamp = _read(CASES[0])
    headers = {**request.headers, "x-amz-content-sha256": "UNSIGNED-PAYLOAD"}
    unsigned = replace(request, headers=headers)
    canonical = sigv4.canonical_request(unsigned, claim)
    assert canonical.endswith("\nUNSIGNED-PAYLOAD")
    key = sigv4.signing_key("s", claim.date, claim.region, claim.service)
    signature = sigv4.sign(key, sigv4.string_to_sign(canonical, timestamp, claim.scope))
    signed = claim._replace(signature=signature)
    assert sigv4.verify(replace(unsigned, body=b"x"), signed, "s", timestamp, NOW) == "valid"


def test_a_body_has_the_hash_that_was_signed() -> None:
    """The signature covers the hash that a header names, and not the body itself."""
    request, claim, timestamp = _read(CASES[0])
    named = {**request.headers, "x-amz-content-sha256": sha256(request.body).hexdigest()}
    hashed = replace(request, headers=named)
    key = sigv4.signing_key("s", claim.date, claim.region, claim.service)
    canonical = sigv4.canonical_request(hashed, claim)
    signature = sigv4.sign(key, sigv4.string_to_sign(canonical, timestamp, claim.scope))
    signed = claim._replace(signature=signature)
    assert sigv4.verify(hashed, signed, "s", timestamp, NOW) == "valid"
    other = replace(hashed, body=request.body + b" ")
    assert sigv4.verify(other, signed, "s", timestamp, NOW) == "mismatch"


@pytest.mark.parametrize(
    "header",
    [
        HEADER.replace(", ", ","),
        HEADER.replace(", ", " ,  "),
        HEADER.replace("AWS4-HMAC-SHA256 ", " AWS4-HMAC-SHA256   "),
    ],
)
def test_separators_of_the_header_may_differ(header: str) -> None:
    assert sigv4.parse_authorization(header) == sigv4.parse_authorization(HEADER)


@pytest.mark.parametrize(
    "header",
    [
        "",
        "Bearer x",
        "AWS AKID:signature=",
        HEADER[:-1],
        HEADER + "x",
        HEADER.replace("AWS4-HMAC-SHA256", "AWS4-HMAC-SHA1"),
        HEADER.replace("SignedHeaders=", "Signed="),
        HEADER.replace("SignedHeaders=", "SignedHeaders=host;"),
        HEADER.replace("Credential=AKIDEXAMPLE/", "Credential=/"),
        HEADER.replace("/20261121/", "/today/"),
        HEADER.replace("/aws4_request", "/aws5_request"),
        HEADER.replace("/us-east-1", ""),
        HEADER.replace("us-east-1", "us-east-1\0"),
        HEADER.replace("us-east-1", "US-EAST-1"),
        HEADER.replace("us-east-1", "r" * 65),
        HEADER.replace("AKIDEXAMPLE", "AKID\0"),
        HEADER.replace("AKIDEXAMPLE", "AKID EXAMPLE"),
        HEADER.replace("AKIDEXAMPLE", "AKIDÉXAMPLE"),
        HEADER.replace("AKIDEXAMPLE", "A" * 129),
        "x" * 100_000 + "Signature=" + "0" * 64,
    ],
    ids=lambda header: header[:40],
)
def test_other_headers_are_malformed(header: str) -> None:
    with pytest.raises(Malformed) as caught:
        sigv4.parse_authorization(header)
    assert caught.value.kind == "signature"


@given(st.text(max_size=40))
def test_any_text_in_a_header_is_malformed(text: str) -> None:
    for header in (text, f"AWS4-HMAC-SHA256 {text}, Signature={'0' * 64}"):
        with pytest.raises(Malformed):
            sigv4.parse_authorization(header)


@pytest.mark.parametrize(
    "change",
    [
        {"X-Amz-Expires": "0"},
        {"X-Amz-Expires": "604801"},
        {"X-Amz-Expires": "x"},
        {"X-Amz-Algorithm": "none"},
        {"X-Amz-Credential": "A/B"},
        {"X-Amz-SignedHeaders": ""},
        {"X-Amz-SignedHeaders": "host;x;x"},
        {"X-Amz-Date": ""},
        {"X-Amz-Date": "yesterday"},
        {"X-Amz-Signature": "short"},
    ],
)
def test_other_signed_urls_are_malformed(change: dict[str, str]) -> None:
    case = next(case for case in CASES if case["name"] == "sqs-presigned-get")
    params = parse_form(urlsplit(case["url"]).query.encode())
    assert sigv4.parse_presigned(params) is not None
    with pytest.raises(Malformed):
        sigv4.parse_presigned(params | change)


def test_a_signature_alone_is_malformed() -> None:
    with pytest.raises(Malformed):
        sigv4.parse_presigned({"Action": "PurgeQueue", "X-Amz-Signature": "1"})


def test_url_without_a_signature_claims_nothing() -> None:
    assert sigv4.parse_presigned({"Action": "ListQueues"}) is None


def test_time_of_signing() -> None:
    assert sigv4.request_timestamp({"date": "Sat, 21 Nov 2026 10:00:00 GMT"}, {}) == (
        "20261121T100000Z"
    )
    headers = {"x-amz-date": "20261121T100000Z", "date": "never"}
    assert sigv4.request_timestamp(headers, {}) == "20261121T100000Z"
    for text in ("", "yesterday", "2026-11-21T10:00:00Z"):
        with pytest.raises(Malformed):
            sigv4.request_timestamp({"date": text}, {})
    request, claim, _ = _read(CASES[0])
    impossible = claim._replace(date="20269999")
    assert sigv4.verify(request, impossible, "s", "20269999T000000Z", NOW) == "skewed"


@pytest.mark.parametrize(
    ("path", "canonical"),
    [
        ("", "/"),
        ("/", "/"),
        ("//", "/"),
        ("/a/./b/../c", "/a/c"),
        ("/../a/", "/a/"),
        ("/a%2Fb~c", "/a%252Fb~c"),
    ],
)
def test_dot_segments_are_removed_and_segments_are_encoded_again(path: str, canonical: str) -> None:
    request, claim, _ = _read(CASES[0])
    lines = sigv4.canonical_request(replace(request, path=path), claim).split("\n")
    assert lines[1] == canonical


def test_query_is_decoded_encoded_and_sorted() -> None:
    request, claim, _ = _read(CASES[0])
    query = "b=1&a=%7e+%c3%b3&a=&B&X-Amz-Signature=0&a.b=%20"
    lines = sigv4.canonical_request(replace(request, query=query), claim).split("\n")
    assert lines[2] == "B=&a=&a=~%2B%C3%B3&a.b=%20&b=1"
