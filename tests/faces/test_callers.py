"""Callers where signatures are not verified: the gateway believes the credentials."""

from __future__ import annotations

import base64
from collections.abc import Mapping

import pytest

from queuegate.gateway.faces.interface import CredentialRule, Request
from queuegate.gateway.http.authentication import Authenticator
from queuegate.gateway.operations.access.caller import Caller
from queuegate.storage.storage_errors import AccessDenied, IncompleteSignature, UnrecognizedClient
from tests.faces.clients import Sqs, authorization
from tests.faces.connections import Answer
from tests.faces.signing import send


def _caller(
    header: str, params: Mapping[str, str] | None = None, *, mode: str = "presence"
) -> Caller:
    accounts = {"AKIAACME": "111122223333"}
    callers = Authenticator(mode=mode, accounts=accounts, account_id="000000000000", region="r")
    headers = {"authorization": header} if header else {}
    return callers.caller(Request("GET", "/", b"", headers, b"", "", "", "1"), params or {})


PRESIGNED = {
    "X-Amz-Algorithm": "AWS4-HMAC-SHA256",
    "X-Amz-Credential": "222222222222/20260101/eu-west-1/sqs/aws4_request",
    "X-Amz-Date": "20260101T000000Z",
    "X-Amz-Expires": "60",
    "X-Amz-SignedHeaders": "host",
    "X-Amz-Signature": "0" * 64,
}


def basic(text: str) -> str:
    return f"Basic {base64.b64encode(text.encode()).decode()}"


def placeholder(key: str = "222222222222", day: str = "20260101", **parts: str) -> str:
    """A header as whoever writes one by hand has it. A part that is empty is left out."""
    scope = f"{key}/{day}/eu-west-1/sqs/aws4_request"
    given = {"Credential": scope, "SignedHeaders": "host", "Signature": "test", **parts}
    shown = ", ".join(f"{name}={value}" for name, value in given.items() if value)
    return f"AWS4-HMAC-SHA256 {shown}"


@pytest.mark.parametrize("mode", ["none", "presence"])
@pytest.mark.parametrize(
    ("header", "account", "region"),
    [
        ("any", "000000000000", "r"),
        ("Bearer 222222222222", "222222222222", "r"),
        ("bearer  222222222222 ", "222222222222", "r"),
        ("Bearer 2222222222222", "000000000000", "r"),
        ("222222222222", "000000000000", "r"),
        (basic("222222222222:"), "222222222222", "r"),
        (basic("222222222222:secret").replace("Basic", "BASIC"), "222222222222", "r"),
        (basic("222222222222"), "222222222222", "r"),
        (basic("test:222222222222"), "000000000000", "r"),
        (basic("\u0662" * 12 + ":"), "000000000000", "r"),
        ("Basic 222222222222!", "000000000000", "r"),
        ("Basic", "000000000000", "r"),
        (placeholder(), "222222222222", "eu-west-1"),
        (placeholder(Signature="0"), "222222222222", "eu-west-1"),
        (placeholder(SignedHeaders="a;a"), "222222222222", "eu-west-1"),
        (placeholder(day="today"), "222222222222", "eu-west-1"),
        (placeholder(key="test"), "000000000000", "eu-west-1"),
        (authorization("222222222222", "eu-west-1"), "222222222222", "eu-west-1"),
        (authorization("AKIAACME"), "111122223333", "us-east-1"),
        (authorization("AKIAOTHER"), "000000000000", "us-east-1"),
    ],
)
def test_a_header_names_an_account(header: str, account: str, region: str, mode: str) -> None:
    caller = _caller(header, mode=mode)
    assert (caller.account_id, caller.region) == (account, region)


def test_so_does_a_presigned_query() -> None:
    caller = _caller("", PRESIGNED)
    assert (caller.account_id, caller.region) == ("222222222222", "eu-west-1")
    caller = _caller("", {**PRESIGNED, "X-Amz-Signature": "test", "X-Amz-Date": "today"})
    assert (caller.account_id, caller.region) == ("222222222222", "eu-west-1")


@pytest.mark.parametrize(
    "header",
    [
        "AWS4-HMAC-SHA256",
        "AWS4-HMAC-SHA256 x",
        "AWS4-HMAC-SHA256 Credential=222222222222",
        "AWS4-HMAC-SHA256 Credential=222222222222, Signature=0",
        "AWS4-HMAC-SHA256 Credential=222222222222/20260101/eu-west-1/sqs/aws4_request",
        "AWS4-HMAC-SHA256 Credential=" + "k" * 200,
        placeholder(Credential=""),
        placeholder(Credential="222222222222"),
        placeholder(Credential="222222222222/20260101/eu-west-1/sqs"),
        placeholder(SignedHeaders=""),
        placeholder(Signature=""),
    ],
)
def test_half_a_signature_names_nobody(header: str) -> None:
    """Landing in another account would mix tenants."""
    with pytest.raises(IncompleteSignature):
        _caller(header)
    with pytest.raises(IncompleteSignature):
        _caller(header, mode="none")


@pytest.mark.parametrize("name", PRESIGNED)
def test_a_presigned_query_needs_all_its_parts(name: str) -> None:
    params = {other: value for other, value in PRESIGNED.items() if other != name}
    with pytest.raises((AccessDenied, IncompleteSignature)):
        _caller("", params)
    with pytest.raises((AccessDenied, IncompleteSignature)):
        _caller("", {name: PRESIGNED[name]})


def _shown(
    wants: CredentialRule,
    headers: Mapping[str, str],
    *,
    api_key: str | None = None,
    public: bool = False,
) -> Caller:
    """The caller with these headers, on a face that wants that."""
    callers = Authenticator(mode="none", accounts={}, account_id="7", region="r", api_key=api_key)
    request = Request("GET", "/", b"", headers, b"", "", "", "1")
    return callers.caller(request, {}, may_be_anonymous=public, wants=wants)


@pytest.mark.parametrize("wants", CredentialRule)
@pytest.mark.parametrize(
    "headers",
    [
        {"authorization": "Bearer qg_1_x"},
        {"authorization": "bEARER  qg_1_x"},
        {"x-api-key": "qg_1_x"},
        {"api-key": "qg_"},
        {"x-api-key": "other", "authorization": "Bearer qg_1_x"},
    ],
)
def test_what_looks_like_a_key_of_ours_must_be_one(
    wants: CredentialRule, headers: dict[str, str]
) -> None:
    with pytest.raises(UnrecognizedClient):
        _shown(wants, headers)
    with pytest.raises(UnrecognizedClient):
        _shown(wants, headers, public=True)


KEY = "the key é"
"""As it is configured."""
SENT = KEY.encode().decode("latin-1")
"""As its bytes read in a header."""


@pytest.mark.parametrize(
    "headers",
    [{"api-key": SENT}, {"x-api-key": SENT}, {"authorization": f"Bearer {SENT}"}],
)
def test_the_key_of_the_gateway_opens_faces_that_want_it(headers: dict[str, str]) -> None:
    assert _shown(CredentialRule.KEY, headers, api_key=KEY) == Caller("7", "r", "7")


@pytest.mark.parametrize("shown", ["", "x", KEY, SENT + "x", SENT[:-1], SENT * 1000, "\x00\xff"])
def test_nothing_else_does(shown: str) -> None:
    for name in ("api-key", "x-api-key", "authorization"):
        with pytest.raises(AccessDenied):
            _shown(CredentialRule.KEY, {name: shown}, api_key=KEY)
        _shown(CredentialRule.KEY, {name: shown})
        _shown(CredentialRule.KEY, {name: shown}, api_key=KEY, public=True)


def test_a_signature_is_no_key() -> None:
    signed = {"authorization": authorization("222222222222")}
    with pytest.raises(AccessDenied):
        _shown(CredentialRule.KEY, signed, api_key=KEY)
    assert _shown(CredentialRule.KEY, signed).account_id == "222222222222"


def test_whatever_is_shown_names_a_producer() -> None:
    def named(name: str = "other", value: str = "") -> str:
        producer = _shown(CredentialRule.NAME, {name: value}).producer
        assert producer is not None
        return producer.producer_id

    one = named("x-api-key", "one")
    assert one == named("api-key", "one") == named("authorization", "Bearer one")
    others = {named(), named("x-api-key", "two"), named("authorization", "Basic one")}
    assert len({one, *others}) == 4
    assert "one" not in one
    signed = authorization("222222222222")
    other_signature = signed.replace("Signature=0", "Signature=1")
    assert named("authorization", signed) == named("authorization", other_signature)


def test_a_browser_names_one_in_its_query() -> None:
    callers = Authenticator(mode="none", accounts={}, account_id="7", region="r")
    request = Request("GET", "/", b"", {}, b"", "", "", "1")
    for text in ("one", "é\ud800"):
        named = callers.caller(request, {"api_key": text}, wants=CredentialRule.NAME).producer
        assert named is not None
    with pytest.raises(UnrecognizedClient):
        callers.caller(request, {"api_key": "qg_1_x"}, wants=CredentialRule.NAME)
    for wants in (CredentialRule.KEY, CredentialRule.CREDENTIALS):
        callers.caller(request, {"api_key": "qg_1_x"}, wants=wants)


@pytest.mark.parametrize("wants", CredentialRule)
@pytest.mark.parametrize("header", [basic("222222222222:x"), "Bearer 222222222222"])
def test_twelve_digits_name_an_account_on_every_face(wants: CredentialRule, header: str) -> None:
    assert _shown(wants, {"authorization": header}).account_id == "222222222222"
    assert _shown(wants, {"x-api-key": "222222222222"}).account_id == "7"
    assert _shown(wants, {"authorization": header}, public=True).account_id == "222222222222"


def test_twelve_digits_are_no_key_of_the_gateway() -> None:
    header = {"authorization": basic("222222222222:x")}
    with pytest.raises(AccessDenied):
        _shown(CredentialRule.KEY, header, api_key=KEY)
    both = _shown(CredentialRule.KEY, {"x-api-key": SENT, **header}, api_key=KEY)
    assert both.account_id == "222222222222"


@pytest.mark.parametrize("scheme", ["Basic", "Bearer"])
def test_requests_of_every_face_reach_that_account(json_sqs: Sqs, scheme: str) -> None:
    account = json_sqs.account
    json_sqs.create("aws")
    shown = basic(f"{account}:") if scheme == "Basic" else f"Bearer {account}"

    def ask(method: str, target: str, body: bytes = b"", header: str = shown) -> Answer:
        headers = {"Authorization": header, "Content-Type": "application/json"}
        return send(json_sqs.url, method, target, headers, body)

    assert ask("POST", "/v1/messages", b'{"channel": "channel", "payload": 1}').status == 201
    assert ask("POST", "/queue?queue=text&group-id=a", b"x").status < 300
    made = b'{"queue_name": "simple"}'
    assert ask("POST", "/api/queues", made).status < 300
    names = {"aws", "channel", "text", "simple"}
    for target in ("/?Action=ListQueues&Version=2012-11-05", "/v1/queues"):
        listed = ask("GET", target).text
        assert all(name in listed for name in names), listed
        assert "channel" not in ask("GET", target, header=basic("900000000001:")).text
