"""Who a request comes from where nobody verifies signatures: what its header claims."""

from __future__ import annotations

import pytest

from gateway.auth import Authenticator

_AUTHENTICATOR = Authenticator(
    mode="presence", accounts={"AKIAACME": "111122223333"}, account_id="000000000000", region="r"
)


@pytest.mark.parametrize(
    ("header", "account", "region"),
    [
        ("any", "000000000000", "r"),
        ("Bearer 222222222222", "000000000000", "r"),
        ("AWS4-HMAC-SHA256 Credential=222222222222", "222222222222", "r"),
        ("AWS4-HMAC-SHA256 Credential=222222222222, Signature=0", "222222222222", "r"),
        ("AWS4-HMAC-SHA256 Credential=AKIAACME/20260101", "111122223333", "r"),
        (
            "AWS4-HMAC-SHA256 Credential=222222222222/20260101/eu-west-1/sqs/aws4_request",
            "222222222222",
            "eu-west-1",
        ),
        ("AWS4-HMAC-SHA256 Credential=", "000000000000", "r"),
        ("AWS4-HMAC-SHA256 Credential=" + "k" * 200, "000000000000", "r"),
    ],
)
def test_a_header_that_is_no_signature_still_names_its_account(
    header: str, account: str, region: str
) -> None:
    """People write such headers by hand; landing in another account would mix tenants."""
    caller = _AUTHENTICATOR.caller(header, {})
    assert (caller.account_id, caller.region) == (account, region)
