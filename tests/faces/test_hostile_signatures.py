"""Nothing that a client can send as credentials breaks anything, or costs much."""

from __future__ import annotations

import hmac
import tracemalloc
from dataclasses import replace
from datetime import UTC, datetime
from time import perf_counter, time
from urllib.parse import urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuegate.gateway.faces.interface import CredentialRule, Request
from queuegate.gateway.http import authentication
from queuegate.gateway.http.authentication import VerifyingAuthenticator
from queuegate.gateway.operations.access.caller import Producer
from queuegate.gateway.operations.access.key_cache import AccessKey
from queuegate.protocol import sigv4
from queuegate.storage.model import ACCESS, Key
from queuegate.storage.storage_errors import IncompleteSignature, Rejected
from tests.faces.signing import JSON, Signer

NAME = "AKQGKNOWN"
KEY = Key(1, ACCESS, "1", "k", None, datetime.now(UTC), None, None, access_key=NAME)
SCOPE = f"{NAME}/20260101/us-east-1/sqs/aws4_request"
WORDS = st.sampled_from(
    f"AWS4-HMAC-SHA256 Credential= SignedHeaders= Signature= host ; , x-amz-date {SCOPE} "
    f"{'0' * 64} / = \x00 é % Bearer qg_1_ ".split(" ")
)
# Header values are bytes, each a character.
LETTERS = st.text(st.characters(max_codepoint=255), max_size=5)
TEXTS = st.lists(st.one_of(WORDS, LETTERS), max_size=12).map("".join)


class _Keys:
    known = AccessKey(KEY, Producer("1", "k"), ("s",))

    def find(self, _: str) -> None:
        return None

    def find_access(self, access_key: str) -> AccessKey | None:
        return self.known if access_key == NAME else None

    def find_session(self, _access_key: str, _token: str) -> None:
        return None


CALLERS = VerifyingAuthenticator(account_id="0", region="r", api_key="k", keys=_Keys())


def refused(headers: dict[str, str], query: bytes = b"", body: bytes = b"") -> None:
    request = Request("POST", "/", query, headers, body, "", "", "1", raw_path="/")
    for wants in CredentialRule:
        with pytest.raises(Rejected):
            CALLERS.caller(request, {}, wants=wants)


@given(TEXTS, TEXTS)
def test_any_header_is_refused(authorization: str, date: str) -> None:
    refused({"authorization": authorization, "x-amz-date": date, "host": "h"})
    refused({"authorization": f"AWS4-HMAC-SHA256 {authorization}", "date": date})


@given(TEXTS, TEXTS, TEXTS)
def test_any_signature_of_a_known_key_is_refused(names: str, date: str, value: str) -> None:
    header = f"AWS4-HMAC-SHA256 Credential={SCOPE},SignedHeaders={names},Signature={'0' * 64}"
    refused({"authorization": header, "x-amz-date": date, "host": value})
    refused({"authorization": header, "x-amz-date": "20260101T000000Z", "x-amz-target": value})


@given(TEXTS, TEXTS)
def test_any_query_is_refused(name: str, value: str) -> None:
    text = f"X-Amz-Signature={'0' * 64}&X-Amz-{name}={value}&X-Amz-Credential={SCOPE}"
    refused({"host": "h"}, text.encode("utf-8", "replace"))


SIGNER = Signer("http://h", NAME, "s", "1")
SEND = {**JSON, "X-Amz-Target": "AmazonSQS.SendMessage"}


def read(signer: Signer) -> dict[bytes, bytes]:
    """The headers of a signed send, as the fast path reads them."""
    sent = signer.sign("POST", "/", SEND, b"{}")
    return {name.lower().encode(): value.encode() for name, value in sent.items()}


def fast(signer: Signer, body: bytes = b"{}", service: str = "sqs") -> bool:
    """Return True if the fast path accepts the request."""
    return CALLERS.fast_caller(read(signer), service, b"/", body) is not None


def test_the_fast_path_takes_what_is_right_alone() -> None:
    for _ in range(2):
        assert fast(SIGNER)
    assert not fast(SIGNER, b"{ }")
    assert not fast(SIGNER, service="sns")
    wrong: list[dict[str, object]] = [
        {"secret": "t"},
        {"access_key": "AKQGOTHER"},
        {"signs_for": "eu-west-1"},
        {"late_seconds": 910},
        {"late_seconds": -910},
    ]
    for changes in wrong:
        assert not fast(SIGNER.other(**changes))
    assert fast(SIGNER.other(late_seconds=890))


def test_a_caller_that_is_remembered_changes_with_its_key() -> None:
    keys = _Keys()
    callers = VerifyingAuthenticator(account_id="0", region="r", api_key="k", keys=keys)

    def asked() -> tuple[str, bool, str]:
        caller = callers.fast_caller(read(SIGNER), "sqs", b"/", b"{}")
        assert caller is not None
        assert caller.producer is not None
        return caller.account_id, caller.is_administrator, caller.producer.name

    before = KEY.account_id, KEY.is_administrator, "k"
    assert [asked(), asked()] == [before] * 2
    changed = replace(KEY, account_id="2", is_administrator=not KEY.is_administrator)
    keys.known = AccessKey(changed, Producer("1", "renamed"), ("s",))
    after = "2", not KEY.is_administrator, "renamed"
    assert [asked(), asked()] == [after] * 2


def test_a_replay_after_the_window_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even by a process that has just taken the same bytes."""
    arguments = read(SIGNER), "sqs", b"/", b"{}"
    for seconds, is_taken in ((0, True), (890, True), (910, False), (-910, False)):
        monkeypatch.setattr(authentication, "time", lambda late=seconds: time() + late)
        assert (CALLERS.fast_caller(*arguments) is not None) == is_taken


@pytest.mark.parametrize("says", [True, False])
def test_nothing_compares_signatures_but_in_constant_time(
    monkeypatch: pytest.MonkeyPatch, *, says: bool
) -> None:
    """The result of `hmac.compare_digest` decides, whatever the signature is."""
    forged = SIGNER.other(secret="wrong")
    assert (fast(SIGNER), fast(forged)) == (True, False)
    for module in (authentication, hmac):
        monkeypatch.setattr(module, "compare_digest", lambda *_: says)
    for signer in (SIGNER, forged):
        assert fast(signer) == says
        headers = signer.sign("POST", "/", SEND, b"{}")
        lower = {name.lower(): value for name, value in headers.items()}
        request = Request("POST", "/", b"", lower, b"{}", "", "", "1", raw_path="/")
        if says:
            assert CALLERS.caller(request, {}).access_key == NAME
        else:
            refused(lower, body=b"{}")


@pytest.mark.parametrize("place", ["header", "url"])
def test_a_header_is_signed_once(place: str) -> None:
    """Each time would be one more value to hash: 64 KB could ask for gigabytes."""
    at = f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}"
    scope, names = SCOPE.replace("20260101", at[:8]), ";".join(["host", *["h"] * 900])
    claim = f"Credential={scope}, SignedHeaders={names}, Signature={'0' * 64}"
    query = urlencode(
        {
            "X-Amz-Algorithm": sigv4.ALGORITHM,
            "X-Amz-Credential": scope,
            "X-Amz-Date": at,
            "X-Amz-Expires": "60",
            "X-Amz-SignedHeaders": names,
            "X-Amz-Signature": "0" * 64,
        }
    )
    headers = {"host": "h", "h": "x  y" * 10_000, "x-amz-date": at}
    if place == "header":
        headers["authorization"] = f"{sigv4.ALGORITHM} {claim}"
    request = Request(
        "GET", "/", b"" if place == "header" else query.encode(), headers, b"", "", "", "1"
    )
    tracemalloc.start()
    with pytest.raises(IncompleteSignature):
        CALLERS.caller(request, {})
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 1_000_000


def test_long_ones_cost_little() -> None:
    many = ";".join(f"h{number}" for number in range(300))
    header = f"AWS4-HMAC-SHA256 Credential={SCOPE}, SignedHeaders={many}, Signature={'0' * 64}"
    began = perf_counter()
    for number in range(100):
        # Where the key is not ours, nobody looks at the body.
        unknown = header.replace(NAME, f"AKQG{number}")
        refused({"authorization": unknown, "x-amz-date": "20260101T000000Z"}, body=b"x" * 8_000_000)
        refused({"authorization": header * 20, "x-amz-date": "20260101T000000Z"})
        refused({"authorization": header, "x-amz-date": "20260101T000000Z", "host": "h " * 4000})
    assert perf_counter() - began < 5
