"""Access and errors where the gateway verifies signatures."""

from __future__ import annotations

from conformance.casebook import Cases
from conformance.driving import Client, expect, expect_refusal

CASES = Cases()
case = CASES.case

_MISMATCH = "The request signature we calculated does not match the signature you provided."
_UNKNOWN = "The security token included in the request is invalid."


@case(brief=True, signed=True)
def a_wrong_secret(client: Client) -> None:
    with client.as_another(AWS_SECRET_ACCESS_KEY="wrong") as stranger:
        _refused(stranger, "SignatureDoesNotMatch", "InvalidSignatureException", _MISMATCH)


@case(brief=True, signed=True)
def an_access_key_of_nobody(client: Client) -> None:
    with client.as_another(AWS_ACCESS_KEY_ID="AKIAIOSFODNN7EXAMPLE") as stranger:
        _refused(stranger, "InvalidClientTokenId", "UnrecognizedClientException", _UNKNOWN)


def _refused(stranger: Client, code: str, exception: str, text: str) -> None:
    for refused, wanted in (
        (stranger.refusal("ListQueues"), code),
        (stranger.sns_refusal("ListTopics"), code),
        (stranger.scheduler_refusal("ListSchedules"), exception),
        (stranger.identity_refusal(), code),
    ):
        expect_refusal(refused, wanted, status=403)
        expect(refused.text.startswith(text), True, refused.text)
