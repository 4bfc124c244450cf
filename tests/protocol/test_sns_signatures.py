import base64
import subprocess
import sys
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from hypothesis import given
from hypothesis import strategies as st

from queuegate.protocol import sns_envelopes
from queuegate.protocol.malformed import Malformed
from tests.protocol.certificates import certificate_of
from tests.protocol.contract import load

VECTORS = load("sns_signatures")
CERTIFICATE: str = VECTORS["certificate_pem"]
MESSAGES = [pytest.param(case["message"], id=case["name"]) for case in VECTORS["cases"]]
SIGNED = {
    "Notification": {"Message", "MessageId", "Subject", "Timestamp", "TopicArn"},
    "SubscriptionConfirmation": {
        "Message",
        "MessageId",
        "SubscribeURL",
        "Timestamp",
        "Token",
        "TopicArn",
    },
}
SIGNED["UnsubscribeConfirmation"] = SIGNED["SubscriptionConfirmation"]


@pytest.fixture(scope="module")
def private_key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(65537, 2048)


@pytest.mark.parametrize("case", VECTORS["cases"], ids=lambda case: case["name"])
def test_the_string_to_sign_is_the_recorded_one(case: dict[str, Any]) -> None:
    assert sns_envelopes.string_to_sign(case["message"]) == case["string_to_sign"].encode()


@pytest.mark.parametrize("message", MESSAGES)
def test_recorded_signatures_are_right(message: dict[str, Any]) -> None:
    assert sns_envelopes.verify(CERTIFICATE, message)


@pytest.mark.parametrize("message", MESSAGES)
def test_a_message_that_was_changed_is_found_out(message: dict[str, Any]) -> None:
    for name in SIGNED[message["Type"]] & message.keys():
        assert not sns_envelopes.verify(CERTIFICATE, message | {name: message[name] + "x"}), name
        without = {key: value for key, value in message.items() if key != name}
        assert not sns_envelopes.verify(CERTIFICATE, without), name
    other = "2" if message["SignatureVersion"] == "1" else "1"
    for version in (other, "3", "", None):
        assert not sns_envelopes.verify(CERTIFICATE, message | {"SignatureVersion": version})
    swapped = bytearray(base64.b64decode(message["Signature"]))
    swapped[10] ^= 1
    for signature in (base64.b64encode(swapped).decode(), "", "AAAA", "no base64", "ż", None):
        assert not sns_envelopes.verify(CERTIFICATE, message | {"Signature": signature})


@pytest.mark.parametrize("message", MESSAGES)
def test_what_is_not_covered_may_change(message: dict[str, Any]) -> None:
    more = {"SigningCertURL": "x", "UnsubscribeURL": "y", "MessageAttributes": {}, "Other": "z"}
    assert sns_envelopes.verify(CERTIFICATE, message | more)


@pytest.mark.parametrize("message", MESSAGES)
@pytest.mark.parametrize("version", ["1", "2"])
def test_what_we_sign_verifies(
    private_key: rsa.RSAPrivateKey,
    message: dict[str, Any],
    version: str,
) -> None:
    envelope = message | {"SignatureVersion": version}
    data = sns_envelopes.string_to_sign(envelope)
    envelope["Signature"] = sns_envelopes.sign(private_key, version, data)
    assert sns_envelopes.verify(certificate_of(private_key), envelope)
    assert not sns_envelopes.verify(CERTIFICATE, envelope)
    assert sns_envelopes.sign(private_key, version, data) == envelope["Signature"]


@given(st.dictionaries(st.text(), st.none() | st.integers() | st.text()))
def test_other_messages_are_malformed(members: dict[str, Any]) -> None:
    for envelope in (members, members | {"Type": "Notification"}):
        with pytest.raises(Malformed):
            sns_envelopes.string_to_sign(envelope)
        assert not sns_envelopes.verify(CERTIFICATE, envelope)


def test_text_that_is_not_unicode_is_malformed() -> None:
    message = VECTORS["cases"][0]["message"] | {"Message": "\ud800"}
    with pytest.raises(Malformed):
        sns_envelopes.string_to_sign(message)
    assert not sns_envelopes.verify(CERTIFICATE, message)


def test_a_certificate_that_is_none_is_malformed() -> None:
    message = VECTORS["cases"][0]["message"]
    other = certificate_of(ec.generate_private_key(ec.SECP256R1()))
    for text in ("", "no certificate", CERTIFICATE[:200], other):
        with pytest.raises(Malformed):
            sns_envelopes.verify(text, message)


def test_signing_is_not_loaded_before_something_is_signed() -> None:
    code = "import sys, queuegate.protocol.sns_envelopes; sys.exit('cryptography' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
