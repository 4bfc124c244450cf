"""The JSON envelopes of SNS for queues and web hooks, and their signatures (docs/contract/sns.md
3.6).

An envelope is made without its signature, which costs a hundred times as much: it is filled in
shortly before somebody reads the envelope. RSA signatures of PKCS#1 v1.5 are deterministic, so
every process and every repetition give the same text. The modules for signing are loaded at the
first signature: they take longer to import than everything else here.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

import orjson

from queuegate.protocol.malformed import Malformed

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
    from cryptography.hazmat.primitives.hashes import HashAlgorithm


VERSIONS: Final = ("1", "2")
"""Values of SignatureVersion: "1" signs with SHA-1, "2" with SHA-256."""

_NOTIFICATION = ("Message", "MessageId", "Subject", "Timestamp", "TopicArn", "Type")
_CONFIRMATION = ("Message", "MessageId", "SubscribeURL", "Timestamp", "Token", "TopicArn", "Type")
_SIGNED: Final[dict[str, tuple[str, ...]]] = {
    "Notification": _NOTIFICATION,
    "SubscriptionConfirmation": _CONFIRMATION,
    "UnsubscribeConfirmation": _CONFIRMATION,
}
_OPTIONAL = "Subject"


def string_to_sign(envelope: Mapping[str, str]) -> bytes:
    """Return the signed text of a message: names and values on a line each. Values are those of the
    message, not as JSON writes them; attributes are not covered. Raises Malformed for an unknown
    type, and for a signed member that is absent or no text."""
    names = _SIGNED.get(envelope.get("Type", ""))
    if names is None:
        raise Malformed("The message has no type that is signed")
    lines = []
    for name in names:
        value = envelope.get(name)
        if value is None and name == _OPTIONAL:
            continue
        if not isinstance(value, str):
            raise Malformed(f"The message has no {name}")
        lines.append(f"{name}\n{value}\n")
    try:
        return "".join(lines).encode()
    except UnicodeEncodeError:
        raise Malformed("The message is not Unicode text") from None


def sign(private_key: RSAPrivateKey, version: str, data: bytes) -> str:
    """Return the signature in base64. The same data always has the same signature."""
    from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15

    signature = private_key.sign(data, PKCS1v15(), _hash(version))
    return b64encode(signature).decode("ascii")


def verify(certificate_pem: str, envelope: Mapping[str, str]) -> bool:
    """Return True if the owner of this certificate signed this message. Only the signature is
    checked: not the issuer of the certificate, nor the URL of the certificate in the message.
    Raises Malformed for a certificate that is none of an RSA key."""
    from cryptography import x509
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

    try:
        public_key = x509.load_pem_x509_certificate(certificate_pem.encode()).public_key()
    except ValueError:
        raise Malformed("This is not a certificate") from None
    if not isinstance(public_key, RSAPublicKey):
        raise Malformed("The certificate is not one of an RSA key")
    version = envelope.get("SignatureVersion")
    if version not in VERSIONS:
        return False
    try:
        signature = b64decode(envelope.get("Signature", ""), validate=True)
        public_key.verify(signature, string_to_sign(envelope), PKCS1v15(), _hash(version))
    except (Malformed, InvalidSignature, ValueError, TypeError):
        return False
    return True


def _hash(version: str) -> HashAlgorithm:
    from cryptography.hazmat.primitives import hashes

    # AWS signs with SHA-1 by default, and old verifiers know nothing else.
    return {"1": hashes.SHA1, "2": hashes.SHA256}[version]()


ConfirmationKind = Literal["SubscriptionConfirmation", "UnsubscribeConfirmation"]

# A line end is escaped in JSON strings, so no published text contains this.
_UNSIGNED = '\n  "Signature" : "",\n'
_CERTIFICATE_END = '.pem"'


class Signing(NamedTuple):
    """The signature version, "1" (SHA-1) or "2" (SHA-256), and the URL of the certificate."""

    version: str
    cert_url: str


class Notification(NamedTuple):
    """An envelope for all subscriptions of a topic, which differ in their link to unsubscribe."""

    head: str
    tail: str

    def to(self, subscription_arn: str) -> str:
        """Return the envelope for one subscription. The ARN of a pattern may contain a `#`, which
        would end the link."""
        return f"{self.head}{subscription_arn.replace('#', '%23')}{self.tail}"


def timestamp(instant: datetime) -> str:
    """Format an instant as envelopes and SNS attributes do: UTC, milliseconds, `Z`."""
    text = instant.astimezone(UTC).isoformat(timespec="milliseconds")
    return text.removesuffix("+00:00") + "Z"


def _text(value: str) -> str:
    return orjson.dumps(value).decode()


class NotificationContent(NamedTuple):
    """A published message in its envelope. `attributes` are as wires decode them."""

    message_id: str
    topic_arn: str
    message: str
    published_at: datetime
    subject: str | None = None
    sequence_number: str | None = None
    attributes: Mapping[str, Mapping[str, Any]] | None = None


def notification(
    published: NotificationContent, *, base_url: str, signing: Signing | None = None
) -> Notification:
    """Return the envelope of a published message. Without `signing` (FIFO topics) it has no place
    for a signature."""
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
    """A request to confirm, or the notice of an end, which has a `subscription_arn`."""

    kind: ConfirmationKind
    message_id: str
    token: str
    topic_arn: str
    subscription_arn: str
    sent_at: datetime


def confirmation(confirming: Confirming, *, base_url: str, signing: Signing) -> str:
    """Return the envelope that asks a web hook to confirm its subscription, or reports its end."""
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
    topic = topic_arn.replace("#", "%23")
    return f"{base_url}/?Action=ConfirmSubscription&TopicArn={topic}&Token={token}"


def cert_url(base_url: str, fingerprint: str) -> str:
    """Return the URL of a key's certificate: verifiers require `.pem`."""
    return f"{base_url}/SimpleNotificationService-{fingerprint}.pem"


def is_unsigned(envelope: str) -> bool:
    return _UNSIGNED in envelope


def to_sign(envelope: str) -> tuple[str, bytes]:
    """Return the signature version and the text to sign of an envelope that `is_unsigned`."""
    members = orjson.loads(envelope)
    return members["SignatureVersion"], string_to_sign(members)


def with_signature(envelope: str, signature: str, fingerprint: str) -> str:
    """Return the envelope with its base64 signature and the URL of the certificate. The key may
    differ from that at the making of the envelope: the URL is not signed."""
    head, found, tail = envelope.partition(_UNSIGNED)
    if not found:
        return envelope
    end = tail.index(_CERTIFICATE_END)
    tail = f"{tail[: end - len(fingerprint)]}{fingerprint}{tail[end:]}"
    return f'{head}\n  "Signature" : "{signature}",\n{tail}'
