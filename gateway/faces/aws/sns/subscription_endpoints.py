"""Endpoints of subscriptions: what each protocol takes, and who has to confirm (sns.md 3.4)."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from queuegate.gateway.faces.aws.sns.errors import (
    InvalidParameter,
)
from queuegate.gateway.operations.runtime.limits import LIMITS
from queuegate.gateway.operations.topics.subscription_settings import check_web_hook
from queuegate.protocol import arns, names
from queuegate.protocol.endpoint_urls import WEB
from queuegate.protocol.errors import Malformed
from queuegate.storage.model import Topic

if TYPE_CHECKING:
    from queuegate.gateway.operations.access.caller import Caller

MAIL = frozenset({"email", "email-json"})
RAW = frozenset({"http", "https", "sqs", "firehose", "log"})
"""The protocols that can have raw delivery."""

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
    endpoint exists does not matter. Raises InvalidParameter, WebHookRefused, AuthorizationError.
    """
    check = CHECKS.get(protocol)
    if check is None and protocol not in WEB:
        raise InvalidParameter(f"Amazon SNS does not support this protocol string: {protocol}")
    if topic.is_fifo and protocol != "sqs":
        raise InvalidParameter(f"Invalid protocol type: {protocol}")
    if check is None:
        check_web_hook(protocol, endpoint, allow_private=allow_private)
        return
    if len(endpoint) > LIMITS.endpoint_length or not endpoint.isprintable():
        # A lone surrogate is not printable, either.
        raise InvalidParameter("Endpoint")
    check(endpoint)
    if protocol == "sqs" and endpoint.endswith(".fifo") and not topic.is_fifo:
        # AWS writes the prefix twice.
        raise InvalidParameter(
            "Invalid parameter: Endpoint Reason: FIFO SQS Queues can not be subscribed to "
            "standard SNS topics"
        )


def log_endpoint(caller: Caller, topic: Topic, endpoint: str) -> str:
    """The ARN that a subscription of protocol log, which is not AWS's, has as its endpoint: of a
    log of the caller's, in the account and region of the topic. Raises InvalidParameter."""
    arn = endpoint
    if names.is_standard_queue_name(endpoint):
        arn = arns.log_arn(topic.region, topic.account_id, endpoint)
    try:
        log = arns.parse_log(arn)
    except Malformed:
        raise InvalidParameter("Log endpoint ARN") from None
    place = (topic.account_id, topic.region)
    if (log.account_id, log.region) != place or caller.account_id != topic.account_id:
        raise InvalidParameter("Endpoint Reason: a log must be of the topic's account and region")
    return arns.log_arn(log.region, log.account_id, log.resource)


def is_confirmed_at_once(account_id: str, protocol: str, endpoint: str) -> bool:
    """Whether nobody has to agree: phones, and what belongs to the subscriber's own account."""
    if protocol in WEB or protocol in MAIL:
        return False
    return protocol == "sms" or arns.parse(endpoint).account_id == account_id


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


CHECKS: dict[str, Callable[[str], None]] = {
    "email": _check_mail,
    "email-json": _check_mail,
    "sms": _check_phone,
    "sqs": _check_queue,
    "application": _arn_check("sns", _PUSH_ENDPOINT, "Application endpoint ARN"),
    "lambda": _arn_check("lambda", _FUNCTION, "Lambda endpoint ARN"),
    "firehose": _arn_check("firehose", _STREAM, "Firehose endpoint ARN"),
}
