"""Who a request comes from where nobody verifies signatures: what its credentials claim."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from gateway.faces.requests import Request
from gateway.http.auth import Authenticator
from gateway.operations.caller import Caller
from storage.errors import AccessDenied, IncompleteSignature
from tests.faces.clients import authorization


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


@pytest.mark.parametrize(
    ("header", "account", "region"),
    [
        ("any", "000000000000", "r"),
        ("Bearer 222222222222", "000000000000", "r"),
        (authorization("222222222222", "eu-west-1"), "222222222222", "eu-west-1"),
        (authorization("AKIAACME"), "111122223333", "us-east-1"),
        (authorization("AKIAOTHER"), "000000000000", "us-east-1"),
    ],
)
def test_a_header_names_an_account(header: str, account: str, region: str) -> None:
    caller = _caller(header)
    assert (caller.account_id, caller.region) == (account, region)


def test_so_does_a_presigned_query() -> None:
    caller = _caller("", PRESIGNED)
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
