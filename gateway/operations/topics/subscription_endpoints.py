"""Endpoints of subscriptions: what each protocol takes, and who has to confirm (sns.md 3.4)."""

from __future__ import annotations

import re
import socket
from collections.abc import Callable
from urllib.parse import SplitResult, urlsplit

from gateway.operations.limits import LIMITS
from protocol import arns
from protocol.addresses import is_private
from protocol.endpoint_urls import is_basic
from protocol.errors import Malformed
from storage.errors import AuthorizationError, InvalidParameter
from storage.model import Topic

WEB = frozenset({"http", "https"})
MAIL = frozenset({"email", "email-json"})
RAW = frozenset({"http", "https", "sqs", "firehose"})
"""The protocols that can have raw delivery."""

# What a URL may be made of (RFC 3986); everything else comes escaped.
_URL = re.compile(r"[A-Za-z0-9._~:/?#\[\]@!$&'()*+,;=%-]+")
# In brackets an IPv6 address only: what else the grammar has for them, nobody can look up.
_HOST_AND_PORT = re.compile(
    r"([A-Za-z0-9._-]{1,253}|\[[0-9A-Fa-f.]*:[0-9A-Fa-f:.]{1,44}\])(:[0-9]{0,5})?"
)
_MAIL = re.compile(r"[^\s@\x00-\x1f\x7f]{1,64}@[^\s@\x00-\x1f\x7f]{1,255}")
_PHONE = re.compile(r"\+?[1-9][0-9]{1,14}")
_PHONE_PUNCTUATION = re.compile(r"[./-]")
_MISPLACED_PUNCTUATION = re.compile(r"[./-]{2}|^[./-]|[./-]$")
_FUNCTION = re.compile(r"function:[A-Za-z0-9_-]{1,140}(:[A-Za-z0-9_$-]{1,128})?")
_STREAM = re.compile(r"deliverystream/[A-Za-z0-9_.-]{1,64}")
_PUSH_ENDPOINT = re.compile(r"endpoint/[A-Za-z0-9_]{1,64}/[A-Za-z0-9_.-]{1,256}/[0-9a-fA-F-]{36}")


def check_endpoint(
    topic: Topic, protocol: str, endpoint: str, *, allow_private: bool = False
) -> None:
    """Refuse what the protocol, or this kind of topic, cannot deliver to.

    ``allow_private``: web hooks may be at addresses that are not the internet's. Whether the
    endpoint exists does not matter. Raises InvalidParameter, AuthorizationError.
    """
    check = _CHECKS.get(protocol)
    if check is None:
        raise InvalidParameter(f"Amazon SNS does not support this protocol string: {protocol}")
    if topic.is_fifo and protocol != "sqs":
        raise InvalidParameter(f"Invalid protocol type: {protocol}")
    if len(endpoint) > LIMITS.endpoint_length or not endpoint.isprintable():
        # A lone surrogate is not printable, either.
        raise InvalidParameter("Endpoint")
    check(endpoint)
    if protocol in WEB:
        _check_url(protocol, endpoint, allow_private=allow_private)
    if protocol == "sqs" and endpoint.endswith(".fifo") and not topic.is_fifo:
        # AWS writes the prefix twice.
        raise InvalidParameter(
            "Invalid parameter: Endpoint Reason: FIFO SQS Queues can not be subscribed to "
            "standard SNS topics"
        )


def is_confirmed_at_once(account_id: str, protocol: str, endpoint: str) -> bool:
    """Whether nobody has to agree: phones, and what belongs to the subscriber's own account."""
    if protocol in WEB or protocol in MAIL:
        return False
    return protocol == "sms" or arns.parse(endpoint).account_id == account_id


def _check_url(protocol: str, endpoint: str, *, allow_private: bool) -> None:
    if not endpoint.startswith(f"{protocol}://"):
        raise InvalidParameter("Endpoint must match the specified protocol")
    url = _split(endpoint)
    host = None if url is None else url.hostname
    if not host:
        raise InvalidParameter("Endpoint")
    if not allow_private and _is_inside(host):
        raise AuthorizationError("Not authorized to subscribe internal endpoints")


def _split(endpoint: str) -> SplitResult | None:
    """The parts of a URL; None when it has odd ones. There may be one `@` before the host: with
    more, programs do not agree on where it begins."""
    if _URL.fullmatch(endpoint) is None:
        return None
    try:
        url = urlsplit(endpoint)
        has_port = url.port != 0
    except ValueError:
        return None
    user_info, at, host_and_port = url.netloc.rpartition("@")
    is_odd = _HOST_AND_PORT.fullmatch(host_and_port) is None or (at and not is_basic(user_info))
    return url if has_port and not is_odd else None


def _is_inside(host: str) -> bool:
    """Whether a host names us or a neighbour, as far as the name itself says so: it is looked up
    when something is delivered."""
    name = host.rstrip(".").lower()
    if name == "localhost" or name.endswith(".localhost"):
        return True
    if ":" in name:
        return is_private(name)
    try:
        # Takes every form that a resolver does: 127.1, 0x7f000001, 2130706433.
        address = socket.inet_ntoa(socket.inet_aton(name))
    except OSError:
        return False
    return is_private(address)


def _check_queue(endpoint: str) -> None:
    try:
        arns.parse_queue(endpoint)
    except Malformed:
        raise InvalidParameter("SQS endpoint ARN") from None


def _check_mail(endpoint: str) -> None:
    if _MAIL.fullmatch(endpoint) is None:
        raise InvalidParameter("Email address")


def _check_phone(endpoint: str) -> None:
    digits = _PHONE_PUNCTUATION.sub("", endpoint)
    if _MISPLACED_PUNCTUATION.search(endpoint) or _PHONE.fullmatch(digits) is None:
        raise InvalidParameter(f"Invalid SMS endpoint: {endpoint}", prefix="")


def _arn_check(service: str, resource: re.Pattern[str], text: str) -> Callable[[str], None]:
    def check(endpoint: str) -> None:
        try:
            arn = arns.parse(endpoint)
        except Malformed:
            raise InvalidParameter(text) from None
        whole = arn.service == service and arn.region and arn.account_id
        if not whole or resource.fullmatch(arn.resource) is None:
            raise InvalidParameter(text)

    return check


def _take_any(_endpoint: str) -> None:
    """Web hooks: their check knows the protocol and the rules of the gateway."""


_CHECKS: dict[str, Callable[[str], None]] = {
    "http": _take_any,
    "https": _take_any,
    "email": _check_mail,
    "email-json": _check_mail,
    "sms": _check_phone,
    "sqs": _check_queue,
    "application": _arn_check("sns", _PUSH_ENDPOINT, "Application endpoint ARN"),
    "lambda": _arn_check("lambda", _FUNCTION, "Lambda endpoint ARN"),
    "firehose": _arn_check("firehose", _STREAM, "Firehose endpoint ARN"),
}
