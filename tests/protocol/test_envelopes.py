"""Envelopes of SNS: AWS's layout to the byte, and nothing in them that a publisher can break."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from datetime import UTC, datetime, timedelta, timezone
from typing import Any, Literal
from urllib.parse import parse_qs, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuegate.protocol import sns_envelopes
from queuegate.protocol.sns_envelopes import Confirming, NotificationContent, Signing

TOPIC = "arn:aws:sns:eu-west-1:123456789012:news"
SUBSCRIPTION = f"{TOPIC}:00000000-1111-2222-3333-444444444444"
MESSAGE_ID = "11111111-2222-3333-4444-555555555555"
BASE_URL = "http://localhost:9324"
OLD, NEW = "0" * 32, "a1" * 16
CERT_URL = f"{BASE_URL}/SimpleNotificationService-{OLD}.pem"
AT = datetime(2026, 11, 21, 12, 0, 0, 4999, tzinfo=UTC)
VERSIONS: tuple[Literal["1"], Literal["2"]] = ("1", "2")
PLACE = '\n  "Signature" : "",\n'
TEXT = st.text(st.characters(exclude_categories=["Cs"])) | st.sampled_from(
    [
        PLACE,
        PLACE * 2,
        '"',
        "\\",
        '",\n  "Signature" : "x',
        "\u2028",
        "\ufffe\uffff",
        "\0\x1f\x7f",
        '.pem",',
        '.pem"\n',
        ".pem",
    ]
)
ATTRIBUTES = st.dictionaries(
    TEXT,
    st.one_of(
        st.builds(
            lambda kind, value: {"DataType": kind, "StringValue": value},
            st.sampled_from(["String", "Number", "String.Array", 'String."']),
            TEXT,
        ),
        st.builds(
            lambda value: {"DataType": "Binary.\u00fc", "BinaryValue": value}, st.binary(max_size=9)
        ),
    ),
    max_size=3,
)


def envelope(
    published: NotificationContent, signing: Signing | None = None, base_url: str = BASE_URL
) -> str:
    return sns_envelopes.notification(published, base_url=base_url, signing=signing).to(
        SUBSCRIPTION
    )


def test_the_layout_of_a_notification() -> None:
    published = NotificationContent(
        MESSAGE_ID,
        TOPIC,
        'Hello "world"\n',
        AT,
        "A subject",
        None,
        {
            "colour": {"DataType": "String", "StringValue": "red"},
            "bytes": {"DataType": "Binary", "BinaryValue": b"\0\xff"},
        },
    )
    assert envelope(published, Signing("1", CERT_URL)) == (
        "{\n"
        '  "Type" : "Notification",\n'
        f'  "MessageId" : "{MESSAGE_ID}",\n'
        f'  "TopicArn" : "{TOPIC}",\n'
        '  "Subject" : "A subject",\n'
        '  "Message" : "Hello \\"world\\"\\n",\n'
        '  "Timestamp" : "2026-11-21T12:00:00.004Z",\n'
        '  "SignatureVersion" : "1",\n'
        '  "Signature" : "",\n'
        f'  "SigningCertURL" : "{CERT_URL}",\n'
        f'  "UnsubscribeURL" : "{BASE_URL}/?Action=Unsubscribe&SubscriptionArn={SUBSCRIPTION}",\n'
        '  "MessageAttributes" : {\n'
        '    "colour" : {"Type":"String","Value":"red"},\n'
        '    "bytes" : {"Type":"Binary","Value":"AP8="}\n'
        "  }\n"
        "}"
    )


def test_the_layout_on_a_fifo_topic() -> None:
    published = NotificationContent(
        MESSAGE_ID, TOPIC, "x", AT, sequence_number="10000000000000000001"
    )
    assert envelope(published) == (
        "{\n"
        '  "Type" : "Notification",\n'
        f'  "MessageId" : "{MESSAGE_ID}",\n'
        '  "SequenceNumber" : "10000000000000000001",\n'
        f'  "TopicArn" : "{TOPIC}",\n'
        '  "Message" : "x",\n'
        '  "Timestamp" : "2026-11-21T12:00:00.004Z",\n'
        f'  "UnsubscribeURL" : "{BASE_URL}/?Action=Unsubscribe&SubscriptionArn={SUBSCRIPTION}"\n'
        "}"
    )


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (
            "SubscriptionConfirmation",
            f"You have chosen to subscribe to the topic {TOPIC}.\\nTo confirm the subscription, "
            "visit the SubscribeURL included in this message.",
        ),
        (
            "UnsubscribeConfirmation",
            f"You have chosen to deactivate subscription {SUBSCRIPTION}.\\nTo cancel this "
            "operation and restore the subscription, visit the SubscribeURL included in this "
            "message.",
        ),
    ],
)
def test_the_layout_of_confirmations(kind: sns_envelopes.ConfirmationKind, text: str) -> None:
    link = f"{BASE_URL}/?Action=ConfirmSubscription&TopicArn={TOPIC}&Token=ab12"
    confirming = Confirming(kind, MESSAGE_ID, "ab12", TOPIC, SUBSCRIPTION, AT)
    made = sns_envelopes.confirmation(confirming, base_url=BASE_URL, signing=Signing("2", CERT_URL))
    assert made == (
        "{\n"
        f'  "Type" : "{kind}",\n'
        f'  "MessageId" : "{MESSAGE_ID}",\n'
        '  "Token" : "ab12",\n'
        f'  "TopicArn" : "{TOPIC}",\n'
        f'  "Message" : "{text}",\n'
        f'  "SubscribeURL" : "{link}",\n'
        '  "Timestamp" : "2026-11-21T12:00:00.004Z",\n'
        '  "SignatureVersion" : "2",\n'
        '  "Signature" : "",\n'
        f'  "SigningCertURL" : "{CERT_URL}"\n'
        "}"
    )
    assert sns_envelopes.is_unsigned(made)
    signed = sns_envelopes.with_signature(made, "c2ln", NEW)
    shown = {"Signature": "c2ln", "SigningCertURL": sns_envelopes.cert_url(BASE_URL, NEW)}
    assert json.loads(signed) == json.loads(made) | shown
    assert not sns_envelopes.is_unsigned(signed)


@pytest.mark.parametrize(
    ("instant", "text"),
    [
        (AT, "2026-11-21T12:00:00.004Z"),
        (AT.replace(microsecond=0), "2026-11-21T12:00:00.000Z"),
        (AT.astimezone(timezone(timedelta(hours=-5))), "2026-11-21T12:00:00.004Z"),
        (datetime(1, 1, 1, tzinfo=UTC), "0001-01-01T00:00:00.000Z"),
    ],
)
def test_timestamps(instant: datetime, text: str) -> None:
    assert sns_envelopes.timestamp(instant) == text


@given(
    message=TEXT,
    subject=st.none() | TEXT,
    attributes=st.none() | ATTRIBUTES,
    base_url=TEXT,
    version=st.none() | st.sampled_from(VERSIONS),
)
def test_json_gives_back_what_was_published(
    message: str,
    subject: str | None,
    attributes: dict[str, Any] | None,
    base_url: str,
    version: str | None,
) -> None:
    signing = None if version is None else Signing(version, f"{base_url}/cert.pem")
    published = NotificationContent(MESSAGE_ID, TOPIC, message, AT, subject, None, attributes)
    text = envelope(published, signing, base_url)
    wanted: dict[str, Any] = {
        "Type": "Notification",
        "MessageId": MESSAGE_ID,
        "TopicArn": TOPIC,
        "Subject": subject,
        "Message": message,
        "Timestamp": "2026-11-21T12:00:00.004Z",
        "SignatureVersion": version,
        "Signature": "" if signing else None,
        "SigningCertURL": f"{base_url}/cert.pem" if signing else None,
        "UnsubscribeURL": f"{base_url}/?Action=Unsubscribe&SubscriptionArn={SUBSCRIPTION}",
        "MessageAttributes": {
            name: {
                "Type": value["DataType"],
                "Value": value.get("StringValue")
                or b64encode(value.get("BinaryValue", b"")).decode(),
            }
            for name, value in (attributes or {}).items()
        }
        or None,
    }
    pairs = json.loads(text, object_pairs_hook=list)
    shown = [name for name, _ in pairs]
    assert shown == [name for name, value in wanted.items() if value is not None]
    assert json.loads(text) == {name: value for name, value in wanted.items() if value is not None}
    # A raw CR or control character would not survive XML.
    assert not re.search(r"[\x00-\x09\x0b-\x1f]", text)
    assert sns_envelopes.is_unsigned(text) == (signing is not None)


@given(
    message=TEXT,
    subject=st.none() | TEXT,
    attributes=ATTRIBUTES,
    base_url=TEXT,
    version=st.sampled_from(VERSIONS),
    signature=st.binary(max_size=300).map(lambda data: b64encode(data).decode()),
)
def test_a_signature_goes_to_its_place_whatever_was_published(
    message: str,
    subject: str | None,
    attributes: dict[str, Any],
    base_url: str,
    version: str,
    signature: str,
) -> None:
    published = NotificationContent(MESSAGE_ID, TOPIC, message, AT, subject, None, attributes)
    signing = Signing(version, sns_envelopes.cert_url(base_url, OLD))
    text = envelope(published, signing, base_url)
    assert text.count(PLACE) == 1
    assert sns_envelopes.to_sign(text) == (version, sns_envelopes.string_to_sign(json.loads(text)))
    signed = sns_envelopes.with_signature(text, signature, NEW)
    shown = {"Signature": signature, "SigningCertURL": sns_envelopes.cert_url(base_url, NEW)}
    assert json.loads(signed) == json.loads(text) | shown
    assert [*json.loads(signed)] == [*json.loads(text)]
    # Verifiers sign nothing of the place itself.
    assert sns_envelopes.string_to_sign(json.loads(signed)) == sns_envelopes.to_sign(text)[1]


def test_links_keep_the_wildcards_of_a_pattern() -> None:
    """A `#` would end the link where it stands."""
    pattern = "arn:aws:sns:eu-west-1:123456789012:order.*.#"
    published = NotificationContent(MESSAGE_ID, TOPIC, "x", AT)
    made = sns_envelopes.notification(published, base_url=BASE_URL).to(f"{pattern}:{MESSAGE_ID}")
    link = json.loads(made)["UnsubscribeURL"]
    query = parse_qs(urlsplit(link).query)
    assert query == {"Action": ["Unsubscribe"], "SubscriptionArn": [f"{pattern}:{MESSAGE_ID}"]}
    back = urlsplit(sns_envelopes.subscribe_url(BASE_URL, pattern, "aa"))
    assert parse_qs(back.query)["TopicArn"] == [pattern]
    assert parse_qs(back.query)["Token"] == ["aa"]
