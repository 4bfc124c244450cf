"""`python -m conformance.models`: print what AWS's service models have and Queuegate has not.

Operations, members, enumerations and errors are in the shapes of botocore's models, names of
attributes in their documentation. tests/protocol/test_models.py holds the code to the locked
models; this command reports what newer ones add.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Collection, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from botocore import __version__  # type: ignore[import-untyped]
from botocore.loaders import Loader  # type: ignore[import-untyped]
from botocore.model import ServiceModel  # type: ignore[import-untyped]

from queuegate.gateway.faces.aws.aws_refusals import ERRORS
from queuegate.gateway.faces.aws.sns import (
    mobile_push,
    sns_sms,
    sns_subscriptions,
    subscription_attributes,
    topic_attributes,
)
from queuegate.gateway.faces.aws.sqs import sqs_messages, sqs_queue_attributes, sqs_sending
from queuegate.protocol import scheduler_shapes, sts_shapes
from queuegate.protocol.service_detection import SERVICES
from queuegate.protocol.shapes import Constraint, Constraints, List, Map, Scalar, Shape, Structure
from queuegate.protocol.urls import WEB
from queuegate.storage.model import Topic, TopicSubscription
from queuegate.storage.queue_model import Received

# botocore has no type information.


_RULES: Mapping[str, Constraints] = {"scheduler": scheduler_shapes.RULES, "sts": sts_shapes.RULES}
"""Members that SQS and SNS require are known to code alone: tests/faces/test_required_members.py
asks for them."""
_ALL_RULES = {**scheduler_shapes.RULES, **sts_shapes.RULES}
_THEN = datetime(2026, 11, 24, tzinfo=UTC)
_MESSAGE = Received(
    *(1, 1, UUID(int=1), 1, "body", "sender", None),
    '{"AWSTraceHeader": "", "DeadLetterQueueSourceArn": ""}',
    *(1, 1, "group", "id"),
)
_TOPIC = Topic(1, "", "", "", "", True, {}, {}, _THEN, 0, "1", True, True, 0, 262_144)
_SUBSCRIPTION = TopicSubscription(
    UUID(int=1),
    arn="",
    topic_id=1,
    topic_arn="",
    protocol="https",
    endpoint="",
    account_id="",
    region="",
    attributes=dict.fromkeys(subscription_attributes.SETTABLE, "{}"),
    is_confirmed=True,
    was_authenticated=True,
    authenticate_on_unsubscribe=True,
    position=1,
    live_from=1,
    gets_events=False,
    is_pattern=False,
    created_at=_THEN,
    user_name="",
)
_RECEIVED = {
    "All",
    *sqs_messages.received_members(_MESSAGE, sqs_messages.ReceiveSelection(("All",), ()), "")[
        "Attributes"
    ],
}
_ENUMERATIONS: Mapping[str, Collection[str]] = {
    "QueueAttributeName": {"All", *sqs_queue_attributes.READABLE},
    "MessageSystemAttributeName": _RECEIVED,
    "MessageSystemAttributeNameForSends": sqs_sending.SYSTEM_ATTRIBUTES,
    "LanguageCodeString": sns_sms.LANGUAGES,
    "SMSSandboxPhoneNumberVerificationStatus": ("Pending", "Verified"),
}
"""Values by shape, of services without rules."""
_DOCUMENTED: Mapping[str, Mapping[str, Collection[str]]] = {
    "sqs": {
        "CreateQueueRequest.Attributes": sqs_queue_attributes.SETTABLE,
        "SetQueueAttributesRequest.Attributes": sqs_queue_attributes.SETTABLE,
        "GetQueueAttributesRequest.AttributeNames": {"All", *sqs_queue_attributes.READABLE},
        "ReceiveMessageRequest.AttributeNames": _RECEIVED,
        "ReceiveMessageRequest.MessageSystemAttributeNames": _RECEIVED,
    },
    "sns": {
        "CreateTopicInput.Attributes": {"FifoTopic", *topic_attributes.SETTABLE},
        "SetTopicAttributesInput.AttributeName": topic_attributes.SETTABLE,
        "GetTopicAttributesResponse.Attributes": topic_attributes.READABLE,
        "SubscribeInput.Protocol": WEB | sns_subscriptions.CHECKS.keys(),
        "SubscribeInput.Attributes": subscription_attributes.SETTABLE,
        "SetSubscriptionAttributesInput.AttributeName": subscription_attributes.SETTABLE,
        "GetSubscriptionAttributesResponse.Attributes": subscription_attributes.read(
            _SUBSCRIPTION, _TOPIC, "Completed"
        ),
        "SetPlatformApplicationAttributesInput.Attributes": mobile_push.APPLICATION_ATTRIBUTES,
        "GetPlatformApplicationAttributesResponse.Attributes": mobile_push.APPLICATION_ATTRIBUTES
        - mobile_push.SECRETS,
        "SetEndpointAttributesInput.Attributes": mobile_push.ENDPOINT_ATTRIBUTES,
        "GetEndpointAttributesResponse.Attributes": mobile_push.ENDPOINT_ATTRIBUTES,
        "SetSMSAttributesInput.attributes": sns_sms.SETTABLE,
    },
}
"""Attributes, and protocols, by the member whose documentation lists them."""
_VALUES = {
    "DefaultSMSType": {"Promotional", "Transactional"},
    "FifoThroughputScope": {"MessageGroup", "Topic"},
    "FilterPolicyScope": {"MessageAttributes", "MessageBody"},
    "RedriveAllowPolicy": {"redrivePermission", "sourceQueueArns"},
    "RedrivePolicy": {"deadLetterTargetArn", "maxReceiveCount"},
    "ReplayStatus": {"Completed", "Failed", "In progress", "Pending"},
    "redrivePermission": {"allowAll", "byQueue", "denyAll"},
}
"""Lists below an attribute in its documentation."""

_NOT_OF_MESSAGES = "an attribute of queues: no message has it"
_NO_NUMBERS = "no account has numbers to send from"
_NO_CREDENTIALS = "credentials of push services are stored and never read"
_NO_PROVIDER = "there are no identity providers"
_NO_ROLES = "there are no roles and users that it could be about"
NOT_SERVED: Mapping[str, str] = {
    "sqs ReceiveMessageRequest.AttributeNames: SqsManagedSseEnabled": _NOT_OF_MESSAGES,
    "sqs ReceiveMessageRequest.MessageSystemAttributeNames: SqsManagedSseEnabled": _NOT_OF_MESSAGES,
    **{f"sns NumberCapability: {value}": _NO_NUMBERS for value in ("MMS", "SMS", "VOICE")},
    **{
        f"sns RouteType: {value}": _NO_NUMBERS
        for value in ("Premium", "Promotional", "Transactional")
    },
    "sns SubscribeInput.Attributes: ReplayStatus": "it can be read only",
    **{
        f"sns GetPlatformApplicationAttributesResponse.Attributes: {name}": _NO_CREDENTIALS
        for name in ("AppleCertificateExpiryDate", "AuthenticationMethod")
    },
    "sts operation AssumeRoleWithSAML": _NO_PROVIDER,
    "sts operation AssumeRoot": _NO_ROLES,
    "sts operation DecodeAuthorizationMessage": "no refusal is encoded",
    "sts operation GetDelegatedAccessToken": _NO_ROLES,
    "sts operation GetFederationToken": _NO_ROLES,
    "sts operation GetWebIdentityToken": _NO_PROVIDER,
    "sts AssumeRole.Tags[]: required Key": "tags of sessions have no effect",
    "sts AssumeRole.Tags[]: required Value": "tags of sessions have no effect",
    "sts error ExpiredTokenException: status 400": "an expired session is refused with 403",
    "sts error IDPCommunicationErrorException": _NO_PROVIDER,
    "sts error IDPRejectedClaimException": _NO_PROVIDER,
    "sts error RegionDisabledException": "no region is disabled",
}
"""Lines of `differences` that are on purpose, and why."""


def differences(service: str, model: Any) -> Iterator[str]:
    """Yield a line for each difference of a service model from what is served."""
    actions, rules = SERVICES[service].actions, _RULES.get(service)
    errors: dict[str, Any] = {}
    for name in model.operation_names:
        if name not in actions:
            yield f"{service} operation {name}"
            continue
        operation, ours = model.operation_model(name), actions[name]
        errors |= {error.name: error for error in operation.error_shapes}
        wanted = ours.input if ours.input.members else None
        yield from _sides(wanted, operation.input_shape, f"{service} {name}", rules)
        yield from _sides(ours.output, operation.output_shape, f"{service} {name} answer", None)
    for name in sorted(actions.keys() - model.operation_names):
        yield f"{service} operation {name}: gone"
    yield from _errors(service, errors)
    yield from _attributes(service, model)


def _sides(
    ours: Structure | None, modelled: Any, path: str, rules: Constraints | None
) -> Iterator[str]:
    """Compare what a request or an answer has; None: nothing."""
    if ours is not None and modelled is not None:
        yield from _shapes(ours, modelled, path, rules)
    elif ours is not None:
        yield f"{path}: gone"
    elif modelled is not None and (modelled.members or path.endswith("answer")):
        yield f"{path}: {modelled.name}"


def _shapes(ours: Shape, modelled: Any, path: str, rules: Constraints | None) -> Iterator[str]:
    """Compare shapes; with rules, also what is required."""
    kind = ours.kind if isinstance(ours, Scalar) else type(ours).__name__.lower()
    if kind != modelled.type_name:
        yield f"{path}: {modelled.type_name}"
    elif isinstance(ours, Structure):
        yield from _structures(ours, modelled, path, rules)
    elif isinstance(ours, List):
        yield from _shapes(ours.item, modelled.member, f"{path}[]", rules)
    elif isinstance(ours, Map):
        yield from _values(path, modelled.key, ())
        yield from _shapes(ours.value, modelled.value, f"{path}{{}}", rules)
    else:
        yield from _values(path, modelled, _ALL_RULES.get(ours, Constraint()).values)


def _structures(
    ours: Structure, modelled: Any, path: str, rules: Constraints | None
) -> Iterator[str]:
    for name, member in modelled.members.items():
        if name in ours.members:
            yield from _shapes(ours.members[name], member, f"{path}.{name}", rules)
        else:
            yield f"{path}: member {name}"
    for name in sorted(ours.members.keys() - modelled.members):
        yield f"{path}: member {name} gone"
    if rules is not None:
        required = {*rules.get(ours, Constraint()).required}
        for name in sorted(required ^ {*modelled.required_members}):
            yield f"{path}: required {name}"


def _values(path: str, modelled: Any, known: Collection[str]) -> Iterator[str]:
    for value in getattr(modelled, "enum", ()):
        if value not in (known or _ENUMERATIONS.get(modelled.name, ())):
            yield f"{path.partition(' ')[0]} {modelled.name}: {value}"


def _errors(service: str, modelled: Mapping[str, Any]) -> Iterator[str]:
    for name, shape in modelled.items():
        ours = ERRORS[service].get(name)
        status = shape.metadata.get("error", {}).get("httpStatusCode")
        if ours is None:
            yield f"{service} error {name}"
        elif status not in (None, ours.status):
            yield f"{service} error {name}: status {status}"


def _attributes(service: str, model: Any) -> Iterator[str]:
    for place, known in _DOCUMENTED.get(service, {}).items():
        shape, member = place.split(".")
        members = model.shape_for(shape).members if shape in model.shape_names else {}
        found = [*documented(members[member].documentation)] if member in members else []
        if not found:
            yield f"{service} {place}: nothing documented"
        for *above, name in found:
            if name not in (_VALUES.get(above[-1], ()) if above else known):
                yield f"{service} {place}: {' '.join((*above, name))}"


_TOKEN = re.compile(r"<li>|</li>|<p>\s*(?:<code>([^<]+)</code>(\s*[\u2013-] )?)?")


def documented(text: str) -> Iterator[tuple[str, ...]]:
    """Yield each name that a list of a documentation explains, behind those of outer items.

    An item explains the name that it begins with, and a paragraph one with a dash behind it.
    """
    paragraph = ""
    items: list[str | None] = []
    for found in _TOKEN.finditer(text):
        name, dash = found.groups()
        if found[0] == "<li>":
            items.append(None)
        elif found[0] == "</li>":
            del items[-1:]
        elif not items:
            paragraph = name if dash else ""
            if paragraph:
                yield (paragraph,)
        elif items[-1] is None:
            items[-1] = name or ""
            if name:
                yield tuple(filter(None, (paragraph, *items)))


def news(data: str | None = None) -> list[str]:
    """Return the differences that are not on purpose, of models below a directory; without one, of
    the installed botocore."""
    loader = Loader() if data is None else Loader([data], include_default_search_paths=False)
    found = [
        line
        for service in SERVICES
        for line in differences(
            service, ServiceModel(loader.load_service_model(service, "service-2"), service)
        )
    ]
    return [line for line in dict.fromkeys(found) if line not in NOT_SERVED]


def report(data: str | None = None) -> None:
    """Print the news, one a line."""
    name = f"botocore {__version__}" if data is None else data
    for line in news(data) or ["nothing new"]:
        print(f"{name}: {line}")


def main() -> None:
    """Report, and never fail."""
    parser = argparse.ArgumentParser(
        prog="python -m conformance.models",
        description="Print what botocore's service models have and Queuegate has not.",
    )
    parser.add_argument("--data", metavar="DIR", help="the data of another botocore")
    report(parser.parse_args().data)


if __name__ == "__main__":
    main()
