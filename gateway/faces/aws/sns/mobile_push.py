"""SNS actions on platform applications and their endpoints (docs/contract/sns.md 3.9).

An endpoint is a device of an application. Any text is accepted as a device's token, because tests
invent tokens.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress

from queuegate.gateway.faces.aws.aws_face import AwsCall, Members
from queuegate.gateway.faces.aws.aws_refusals import (
    EndpointDisabled,
    InvalidParameter,
    PlatformApplicationDisabled,
)
from queuegate.gateway.faces.aws.aws_rules import AWS
from queuegate.gateway.faces.aws.sns.sns_members import (
    checked_arn,
    parameter,
    position_behind,
    token_after,
)
from queuegate.gateway.operations.access.caller import Caller
from queuegate.gateway.operations.runtime.engine import Engine
from queuegate.gateway.operations.topics import mobile
from queuegate.protocol import arns
from queuegate.protocol.names import invalid_characters, printable
from queuegate.storage.model import ApplicationName, PlatformApplication, PlatformEndpoint
from queuegate.storage.storage_errors import NotFound, PushTokenTaken

PLATFORMS = frozenset(
    {
        "ADM",
        "APNS",
        "APNS_SANDBOX",
        "APNS_VOIP",
        "APNS_VOIP_SANDBOX",
        "BAIDU",
        "GCM",
        "MACOS",
        "MACOS_SANDBOX",
        "MPNS",
        "WNS",
    }
)
_OTHER_NAMES = {"FCM": "GCM"}
# Google's service needs an API key alone.
_WITHOUT_PRINCIPAL = frozenset({"GCM"})
SECRETS = frozenset({"PlatformCredential", "PlatformPrincipal"})
APPLICATION_ATTRIBUTES = SECRETS | {
    "ApplePlatformBundleID",
    "ApplePlatformTeamID",
    "Enabled",
    "EventDeliveryFailure",
    "EventEndpointCreated",
    "EventEndpointDeleted",
    "EventEndpointUpdated",
    "FailureFeedbackRoleArn",
    "SuccessFeedbackRoleArn",
    "SuccessFeedbackSampleRate",
}
_NAME = re.compile(r"[A-Za-z0-9._-]+")
# AWS repeats a name that is too long in full (docs/contract/sns.md 3.9).
_MOST_SHOWN_OF_NAME = 2_048
_APPLICATIONS = "applications"


async def create_platform_application(call: AwsCall) -> Members:
    """Create an application, or return the existing one with the same attributes."""
    name = _checked_name(call.required("Name"))
    platform = _checked_platform(call.required("Platform"))
    attributes = {"Enabled": "true"} | _application_attributes(call)
    _check_credentials(platform, attributes)
    application = await mobile.create_application(
        call.engine, call.caller, platform, name, attributes
    )
    if application.attributes != attributes:
        raise InvalidParameter(
            "Name Reason: An application with the same name but different properties already exists"
        )
    return {"PlatformApplicationArn": application.arn}


def _checked_name(name: str) -> str:
    if not name:
        reason = "cannot be empty"
    elif len(name) > AWS.application_name_length:
        reason = f"must be at most {AWS.application_name_length} characters long"
    elif _NAME.fullmatch(name) is None:
        reason = "must contain only characters 'a'-'z', 'A'-'Z', '0'-'9', '_', '-', and '.'"
    else:
        return name
    raise InvalidParameter(f"{printable(name, _MOST_SHOWN_OF_NAME)} Reason: {reason}")


def _checked_platform(platform: str) -> str:
    platform = _OTHER_NAMES.get(platform, platform)
    if platform not in PLATFORMS:
        raise InvalidParameter(f"Platform Reason: {printable(platform)} is not supported")
    return platform


def _application_attributes(call: AwsCall) -> dict[str, str]:
    checked = {}
    for name, value in call.required("Attributes", may_be_empty=False).items():
        if name not in APPLICATION_ATTRIBUTES:
            raise InvalidParameter(f"Attributes Reason: Invalid attribute name: {printable(name)}")
        checked[name] = checked_switch(value) if name == "Enabled" else value
        is_secret = name in SECRETS
        too_large = len(value) > (
            AWS.application_secret_length if is_secret else AWS.application_value_length
        )
        if too_large or invalid_characters(value) or not _is_rate(name, value):
            raise InvalidParameter(f"Attributes Reason: Invalid value for attribute: {name}")
    return checked


def _is_rate(name: str, value: str) -> bool:
    return name != "SuccessFeedbackSampleRate" or re.fullmatch("[0-9]{1,2}|100", value) is not None


def checked_switch(value: str) -> str:
    """Return the value of the attribute Enabled in lower case. Raises InvalidParameter."""
    value = value.lower()
    if value not in ("true", "false"):
        raise InvalidParameter("Attributes Reason: Invalid value for attribute: Enabled")
    return value


def _check_credentials(platform: str, attributes: Mapping[str, str]) -> None:
    has_credential = "PlatformCredential" in attributes
    has_principal = "PlatformPrincipal" in attributes
    if has_credential and not has_principal and platform not in _WITHOUT_PRINCIPAL:
        raise InvalidParameter(
            "Attributes Reason: PlatformCredential attribute provided without PlatformPrincipal"
        )
    if has_principal and not has_credential:
        raise InvalidParameter(
            "Attributes Reason: PlatformPrincipal attribute provided without PlatformCredential"
        )


def checked_resource(member: str, text: str | None, elements: int) -> tuple[arns.Arn, list[str]]:
    """Parse an ARN of SNS whose resource has ``elements`` parts between slashes. Raises
    ValidationFailed and InvalidParameter; ``member`` is written as in ValidationFailed."""
    arn = checked_arn(member, text, arns.parse)
    parts = arn.resource.split("/")
    if len(parts) != elements:
        raise InvalidParameter(
            f"{parameter(member)} Reason: Wrong number of slashes in relative portion of the ARN."
        )
    return arn, parts


def _application(call: AwsCall) -> ApplicationName:
    """Return the application of the request. Raises ValidationFailed and InvalidParameter."""
    text = call.members.get("PlatformApplicationArn")
    arn, (kind, platform, name) = checked_resource("platformApplicationArn", text, 3)
    if arn.service != "sns" or kind != "app":
        raise InvalidParameter("PlatformApplicationArn")
    return ApplicationName(arn.account_id, arn.region, platform, name)


async def delete_platform_application(call: AwsCall) -> None:
    """Delete an application. An absent one is no error."""
    await mobile.delete_application(call.engine, call.caller, _application(call))


async def get_platform_application_attributes(call: AwsCall) -> Members:
    found = await mobile.find_application(call.engine, call.caller, _application(call))
    return {"Attributes": _visible_application(found)}


def _visible_application(application: PlatformApplication) -> dict[str, str]:
    """Return the readable attributes: all but the credentials."""
    return {name: value for name, value in application.attributes.items() if name not in SECRETS}


async def set_platform_application_attributes(call: AwsCall) -> None:
    """Set the given attributes and leave the others."""
    identity = _application(call)
    attributes = _application_attributes(call)
    await mobile.change_application(call.engine, call.caller, identity, attributes)


async def list_platform_applications(call: AwsCall) -> Members:
    size = AWS.topics_page
    after = position_behind(_APPLICATIONS, call.members.get("NextToken"))
    found = await mobile.list_applications(call.engine, call.caller, after_id=after, limit=size + 1)
    listed = [
        {"PlatformApplicationArn": application.arn, "Attributes": _visible_application(application)}
        for application in found[:size]
    ]
    token = token_after(_APPLICATIONS, [one.application_id for one in found], size)
    return {"PlatformApplications": listed, "NextToken": token}


ENDPOINT_ATTRIBUTES = frozenset({"CustomUserData", "Enabled", "Token"})
_APPLE = ("APNS", "MACOS")
_ENDPOINTS = "endpoints"


async def create_platform_endpoint(call: AwsCall) -> Members:
    """Create an endpoint, or return the one with the same token and attributes. CustomUserData may
    be a member or an attribute; the attribute wins."""
    members = call.members
    identity = _application(call)
    token = call.required("Token")
    given = _endpoint_attributes({"Token": token, **(members.get("Attributes") or {})})
    token = _checked_token(given.pop("Token"), identity.platform)
    user_data = members.get("CustomUserData")
    if user_data is not None and "CustomUserData" not in given:
        given |= _endpoint_attributes({"CustomUserData": user_data})
    attributes = _stored({"Enabled": "true"} | given)
    with _naming_the_endpoint():
        arn = await mobile.create_endpoint(call.engine, call.caller, identity, token, attributes)
    return {"EndpointArn": arn}


@contextmanager
def _naming_the_endpoint() -> Iterator[None]:
    """Put the ARN of the present endpoint into the refusal: clients parse it."""
    try:
        yield
    except PushTokenTaken as refusal:
        raise InvalidParameter(
            f"Token Reason: Endpoint {refusal.arn} already exists with the same Token, but "
            "different attributes."
        ) from None


def _endpoint_attributes(attributes: Mapping[str, str]) -> dict[str, str]:
    checked = {}
    for name, value in attributes.items():
        if name not in ENDPOINT_ATTRIBUTES:
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
    """Drop empty user data, which means none."""
    return {name: value for name, value in attributes.items() if value}


def _checked_endpoint(text: str | None) -> str:
    arn, (kind, _, _, _) = checked_resource("endpointArn", text, 4)
    if arn.service != "sns" or kind != "endpoint":
        raise InvalidParameter("EndpointArn")
    assert text is not None
    return text


async def delete_endpoint(call: AwsCall) -> None:
    """Delete an endpoint. An absent one is no error."""
    arn = _checked_endpoint(call.members.get("EndpointArn"))
    with suppress(NotFound):
        await mobile.delete_endpoint(call.engine, call.caller, arn)


async def get_endpoint_attributes(call: AwsCall) -> Members:
    """Return Enabled, Token, and CustomUserData if present."""
    arn = _checked_endpoint(call.members.get("EndpointArn"))
    return {
        "Attributes": _visible_endpoint(await mobile.find_endpoint(call.engine, call.caller, arn))
    }


def _visible_endpoint(endpoint: PlatformEndpoint) -> dict[str, str]:
    shown_first = {"Enabled": endpoint.attributes["Enabled"], "Token": endpoint.token}
    return {**shown_first, **endpoint.attributes}


async def set_endpoint_attributes(call: AwsCall) -> None:
    """Set the given attributes and leave the others."""
    arn = _checked_endpoint(call.members.get("EndpointArn"))
    given = call.required("Attributes", may_be_empty=False)
    changes = _endpoint_attributes(given)

    def work_out(endpoint: PlatformEndpoint) -> tuple[str, dict[str, str]]:
        token = _checked_token(changes.pop("Token", endpoint.token), endpoint.platform)
        return token, _stored({**endpoint.attributes, **changes})

    with _naming_the_endpoint():
        await mobile.change_endpoint(call.engine, call.caller, arn, work_out)


async def list_endpoints_by_platform_application(call: AwsCall) -> Members:
    size = AWS.topics_page
    identity = _application(call)
    after = position_behind(_ENDPOINTS, call.members.get("NextToken"))
    found = await mobile.list_endpoints(
        call.engine, call.caller, identity, after_position=after, limit=size + 1
    )
    listed = [
        {"EndpointArn": endpoint.arn, "Attributes": _visible_endpoint(endpoint)}
        for endpoint in found[:size]
    ]
    token = token_after(_ENDPOINTS, [endpoint.position for endpoint in found], size)
    return {"Endpoints": listed, "NextToken": token}


async def endpoint_for_publish(engine: Engine, caller: Caller, target_arn: str) -> PlatformEndpoint:
    """Return the endpoint of a message to a TargetArn. Raises InvalidParameter, EndpointDisabled
    and PlatformApplicationDisabled."""
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
