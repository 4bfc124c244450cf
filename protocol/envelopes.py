"""The JSON envelopes of SNS: what a queue or a web hook gets (docs/contract/sns.md 3.6).

An envelope is made without its signature, which costs a hundred times what the rest does: the place
stays empty until somebody is about to read it. RSA signatures of PKCS#1 v1.5 are deterministic, so
whoever fills it in, and however often, the text is the same.
"""

from base64 import b64encode
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Literal, NamedTuple

import orjson

from queuegate.protocol.sns_signatures import string_to_sign

ConfirmationKind = Literal["SubscriptionConfirmation", "UnsubscribeConfirmation"]

# Inside a JSON string a line end is escaped: nothing that a publisher writes looks like this.
_UNSIGNED = '\n  "Signature" : "",\n'
_CERTIFICATE_END = '.pem"'


class Signing(NamedTuple):
    """How an envelope will be signed: version "1" (SHA-1) or "2" (SHA-256), and where the
    certificate is."""

    version: str
    cert_url: str


class Notification(NamedTuple):
    """An envelope for all subscriptions of a topic; what differs is where each unsubscribes."""

    head: str
    tail: str

    def to(self, subscription_arn: str) -> str:
        """The envelope for one subscription. In the ARN of a pattern there may be a `#`, with which
        the link would end."""
        return f"{self.head}{subscription_arn.replace('#', '%23')}{self.tail}"


def timestamp(instant: datetime) -> str:
    """As envelopes and SNS attributes write it: UTC, milliseconds, `Z`."""
    text = instant.astimezone(UTC).isoformat(timespec="milliseconds")
    return text.removesuffix("+00:00") + "Z"


def _text(value: str) -> str:
    return orjson.dumps(value).decode()


class Published(NamedTuple):
    """A published message as its envelope shows it. `attributes` are as wires decode them."""

    message_id: str
    topic_arn: str
    message: str
    published_at: datetime
    subject: str | None = None
    sequence_number: str | None = None
    attributes: Mapping[str, Mapping[str, Any]] | None = None


def notification(
    published: Published, *, base_url: str, signing: Signing | None = None
) -> Notification:
    """The envelope of a published message.

    Without `signing` (FIFO topics) there is no signature and no place for one.
    """
    message_id, topic_arn, message, published_at, subject, number, attributes = published
    numbered = f'\n  "SequenceNumber" : "{number}",' if number else ""
    about = f'\n  "Subject" : {_text(subject)},' if subject is not None else ""
    signature = _signature_lines(signing)
    unsubscribe = _text(f"{base_url}/?Action=Unsubscribe&SubscriptionArn=")[:-1]
    head = (
        f'{{\n  "Type" : "Notification",\n  "MessageId" : "{message_id}",{numbered}'
        f'\n  "TopicArn" : "{topic_arn}",{about}\n  "Message" : {_text(message)},'
        f'\n  "Timestamp" : "{timestamp(published_at)}",{signature}'
        f'\n  "UnsubscribeURL" : {unsubscribe}'
    )
    return Notification(head, f'"{_attribute_lines(attributes)}\n}}')


def _signature_lines(signing: Signing | None) -> str:
    if signing is None:
        return ""
    return (
        f'\n  "SignatureVersion" : "{signing.version}",{_UNSIGNED}'
        f'  "SigningCertURL" : {_text(signing.cert_url)},'
    )


def _attribute_lines(attributes: Mapping[str, Mapping[str, Any]] | None) -> str:
    if not attributes:
        return ""
    lines = []
    for name, value in attributes.items():
        data_type = value["DataType"]
        is_binary = data_type.startswith("Binary")
        text = b64encode(value["BinaryValue"]).decode() if is_binary else value["StringValue"]
        shown = orjson.dumps({"Type": data_type, "Value": text}).decode()
        lines.append(f"    {_text(name)} : {shown}")
    return ',\n  "MessageAttributes" : {\n' + ",\n".join(lines) + "\n  }"


class Confirming(NamedTuple):
    """A request to confirm, or the news of an end. `subscription_arn` appears in the latter."""

    kind: ConfirmationKind
    message_id: str
    token: str
    topic_arn: str
    subscription_arn: str
    sent_at: datetime


def confirmation(confirming: Confirming, *, base_url: str, signing: Signing) -> str:
    """The envelope that asks a web hook to confirm that it subscribes, or tells it that it does not
    any more."""
    kind, message_id, token, topic_arn, subscription_arn, sent_at = confirming
    if kind == "SubscriptionConfirmation":
        text = (
            f"You have chosen to subscribe to the topic {topic_arn}.\n"
            "To confirm the subscription, visit the SubscribeURL included in this message."
        )
    else:
        text = (
            f"You have chosen to deactivate subscription {subscription_arn}.\n"
            "To cancel this operation and restore the subscription, visit the SubscribeURL "
            "included in this message."
        )
    lines = _signature_lines(signing).removesuffix(",")
    return (
        f'{{\n  "Type" : "{kind}",\n  "MessageId" : "{message_id}",\n  "Token" : "{token}",'
        f'\n  "TopicArn" : "{topic_arn}",\n  "Message" : {_text(text)},'
        f'\n  "SubscribeURL" : {_text(subscribe_url(base_url, topic_arn, token))},'
        f'\n  "Timestamp" : "{timestamp(sent_at)}",{lines}\n}}'
    )


def subscribe_url(base_url: str, topic_arn: str, token: str) -> str:
    """The link that confirms a subscription."""
    topic = topic_arn.replace("#", "%23")
    return f"{base_url}/?Action=ConfirmSubscription&TopicArn={topic}&Token={token}"


def cert_url(base_url: str, fingerprint: str) -> str:
    """Where the certificate of a key is: verifiers insist on `.pem`."""
    return f"{base_url}/SimpleNotificationService-{fingerprint}.pem"


def is_unsigned(envelope: str) -> bool:
    """Whether the place of a signature is still empty."""
    return _UNSIGNED in envelope


def to_sign(envelope: str) -> tuple[str, bytes]:
    """(signature version, what is to be signed) of an envelope that `is_unsigned`."""
    members = orjson.loads(envelope)
    return members["SignatureVersion"], string_to_sign(members)


def with_signature(envelope: str, signature: str, fingerprint: str) -> str:
    """The same envelope with its signature, which is base64, and the certificate that belongs to
    it: the key may be another one than when the envelope was made. The URL is not signed."""
    head, found, tail = envelope.partition(_UNSIGNED)
    if not found:
        return envelope
    end = tail.index(_CERTIFICATE_END)
    tail = f"{tail[: end - len(fingerprint)]}{fingerprint}{tail[end:]}"
    return f'{head}\n  "Signature" : "{signature}",\n{tail}'
