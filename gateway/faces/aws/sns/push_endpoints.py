"""SNS actions on push endpoints, each a device of an application (docs/contract/sns.md 3.9).

Tokens of devices may be any text: testers make them up.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress

from queuegate.gateway.faces.aws.face import Binding, Call, Members
from queuegate.gateway.faces.aws.limits import AWS
from queuegate.gateway.faces.aws.sns.errors import (
    EndpointDisabled,
    InvalidParameter,
    PlatformApplicationDisabled,
    ValidationFailed,
)
from queuegate.gateway.faces.aws.sns.pages import position_behind
from queuegate.gateway.faces.aws.sns.push_platforms import (
    checked_application,
    checked_resource,
    checked_switch,
)
from queuegate.gateway.operations.access.caller import Caller
from queuegate.gateway.operations.runtime.engine import Engine
from queuegate.gateway.operations.topics import mobile
from queuegate.protocol import arns
from queuegate.protocol.names import invalid_characters, printable
from queuegate.protocol.page_tokens import token_behind
from queuegate.storage.errors import (
    NotFound,
    PushTokenTaken,
)
from queuegate.storage.model import PlatformEndpoint

SETTABLE = frozenset({"CustomUserData", "Enabled", "Token"})
_APPLE = ("APNS", "MACOS")
_LISTING = "endpoints"


async def create_platform_endpoint(call: Call) -> Members:
    """The new endpoint, or the one with the same token and attributes. CustomUserData may be given
    on its own or as an attribute, which wins."""
    members = call.members
    identity = checked_application(members.get("PlatformApplicationArn"))
    if members.get("Token") is None:
        raise ValidationFailed("token")
    given = _checked_attributes({"Token": members["Token"], **(members.get("Attributes") or {})})
    token = _checked_token(given.pop("Token"), identity.platform)
    user_data = members.get("CustomUserData")
    if user_data is not None and "CustomUserData" not in given:
        given |= _checked_attributes({"CustomUserData": user_data})
    attributes = _stored({"Enabled": "true"} | given)
    with _saying_whose_token():
        arn = await mobile.create_endpoint(call.engine, call.caller, identity, token, attributes)
    return {"EndpointArn": arn}


@contextmanager
def _saying_whose_token() -> Iterator[None]:
    """Clients find the ARN in the text."""
    try:
        yield
    except PushTokenTaken as refusal:
        raise InvalidParameter(
            f"Token Reason: Endpoint {refusal.arn} already exists with the same Token, but "
            "different attributes."
        ) from None


def _checked_attributes(attributes: Mapping[str, str]) -> dict[str, str]:
    checked = {}
    for name, value in attributes.items():
        if name not in SETTABLE:
            raise InvalidParameter(f"Attributes Reason: Invalid attribute name: {printable(name)}")
        checked[name] = checked_switch(value) if name == "Enabled" else value
    user_data = checked.get("CustomUserData", "")
    if invalid_characters(user_data):
        raise InvalidParameter("Attributes Reason: Invalid value for attribute: CustomUserData")
    if len(user_data.encode()) > AWS.device_data_bytes:
        raise InvalidParameter(
            "Attributes Reason: Invalid value for attribute: CustomUserData: must be at most "
            f"{AWS.device_data_bytes} bytes long in UTF-8 encoding"
        )
    return checked


def _checked_token(token: str, platform: str) -> str:
    if not token or invalid_characters(token) or len(token.encode()) > AWS.device_token_bytes:
        raise InvalidParameter(
            f"Token Reason: must be between 1 and {AWS.device_token_bytes} bytes long in UTF-8 "
            "encoding"
        )
    if platform.startswith(_APPLE) and len(token) > AWS.apple_token_length:
        raise InvalidParameter(
            "Token Reason: iOS device tokens must be no more than "
            f"{AWS.apple_token_length} hexadecimal characters"
        )
    return token


def _stored(attributes: Mapping[str, str]) -> dict[str, str]:
    """Without user data that is empty: that means none."""
    return {name: value for name, value in attributes.items() if value}


def _checked_endpoint(text: str | None) -> str:
    arn, (kind, _, _, _) = checked_resource("endpointArn", text, 4)
    if arn.service != "sns" or kind != "endpoint":
        raise InvalidParameter("EndpointArn")
    assert text is not None
    return text


async def delete_endpoint(call: Call) -> None:
    """One that does not exist is fine."""
    arn = _checked_endpoint(call.members.get("EndpointArn"))
    with suppress(NotFound):
        await mobile.delete_endpoint(call.engine, call.caller, arn)


async def get_endpoint_attributes(call: Call) -> Members:
    """Enabled, Token, and CustomUserData if there is some."""
    arn = _checked_endpoint(call.members.get("EndpointArn"))
    return {"Attributes": _visible(await mobile.find_endpoint(call.engine, call.caller, arn))}


def _visible(endpoint: PlatformEndpoint) -> dict[str, str]:
    shown_first = {"Enabled": endpoint.attributes["Enabled"], "Token": endpoint.token}
    return {**shown_first, **endpoint.attributes}


async def set_endpoint_attributes(call: Call) -> None:
    """Set these attributes and leave the others."""
    arn = _checked_endpoint(call.members.get("EndpointArn"))
    given = call.members.get("Attributes")
    if not given:
        raise ValidationFailed("attributes")
    changes = _checked_attributes(given)

    def work_out(endpoint: PlatformEndpoint) -> tuple[str, dict[str, str]]:
        token = _checked_token(changes.pop("Token", endpoint.token), endpoint.platform)
        return token, _stored({**endpoint.attributes, **changes})

    with _saying_whose_token():
        await mobile.change_endpoint(call.engine, call.caller, arn, work_out)


async def list_endpoints_by_platform_application(call: Call) -> Members:
    size = AWS.topics_page
    identity = checked_application(call.members.get("PlatformApplicationArn"))
    after = position_behind(_LISTING, call.members.get("NextToken"))
    found = await mobile.list_endpoints(
        call.engine, call.caller, identity, after_position=after, limit=size + 1
    )
    listed = [
        {"EndpointArn": endpoint.arn, "Attributes": _visible(endpoint)} for endpoint in found[:size]
    ]
    last = str(found[size - 1].position) if len(found) > size else None
    token = None if last is None else token_behind(_LISTING, last)
    return {"Endpoints": listed, "NextToken": token}


async def endpoint_for_publish(engine: Engine, caller: Caller, target_arn: str) -> PlatformEndpoint:
    """The endpoint that a message to a TargetArn goes to.

    Raises InvalidParameter, EndpointDisabled and PlatformApplicationDisabled.
    """
    missing = arns.missing_elements(target_arn)
    if missing is not None:
        raise InvalidParameter(f"TargetArn Reason: {missing}")
    try:
        endpoint = await mobile.find_endpoint(engine, caller, _checked_endpoint(target_arn))
    except (NotFound, InvalidParameter):
        raise InvalidParameter(
            "TargetArn Reason: No endpoint found for the target arn specified"
        ) from None
    if not endpoint.is_application_enabled:
        raise PlatformApplicationDisabled("Platform application is disabled")
    if endpoint.attributes["Enabled"] != "true":
        raise EndpointDisabled("Endpoint is disabled")
    return endpoint


BINDINGS: dict[str, Binding] = {
    "CreatePlatformEndpoint": create_platform_endpoint,
    "DeleteEndpoint": delete_endpoint,
    "GetEndpointAttributes": get_endpoint_attributes,
    "SetEndpointAttributes": set_endpoint_attributes,
    "ListEndpointsByPlatformApplication": list_endpoints_by_platform_application,
}
