"""SNS actions on platform applications: action -> binding (docs/contract/sns.md 3.9)."""

from __future__ import annotations

import re
from collections.abc import Mapping

from queuegate.gateway.faces.aws.face import Binding, Call, Members
from queuegate.gateway.faces.aws.limits import AWS
from queuegate.gateway.faces.aws.sns.errors import (
    InvalidParameter,
    ValidationFailed,
)
from queuegate.gateway.faces.aws.sns.pages import position_behind
from queuegate.gateway.operations.topics import mobile
from queuegate.protocol import arns
from queuegate.protocol.errors import Malformed
from queuegate.protocol.names import invalid_characters, printable
from queuegate.protocol.page_tokens import token_behind
from queuegate.storage.model import ApplicationName, PlatformApplication

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
# An API key is all that Google's service needs.
_WITHOUT_PRINCIPAL = frozenset({"GCM"})
SECRETS = frozenset({"PlatformCredential", "PlatformPrincipal"})
SETTABLE = SECRETS | {
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
# AWS repeats all of a name that is too long (docs/contract/sns.md 3.9).
_MOST_SHOWN_OF_NAME = 2_048
_LISTING = "applications"


async def create_platform_application(call: Call) -> Members:
    """The new application, or the existing one with the same attributes."""
    members = call.members
    name = _checked_name(members.get("Name"))
    platform = _checked_platform(members.get("Platform"))
    attributes = {"Enabled": "true"} | _checked_attributes(members.get("Attributes"))
    _check_credentials(platform, attributes)
    application = await mobile.create_application(
        call.engine, call.caller, platform, name, attributes
    )
    if application.attributes != attributes:
        raise InvalidParameter(
            "Name Reason: An application with the same name but different properties already exists"
        )
    return {"PlatformApplicationArn": application.arn}


def _checked_name(name: str | None) -> str:
    if name is None:
        raise ValidationFailed("name")
    if not name:
        reason = "cannot be empty"
    elif len(name) > AWS.application_name_length:
        reason = f"must be at most {AWS.application_name_length} characters long"
    elif _NAME.fullmatch(name) is None:
        reason = "must contain only characters 'a'-'z', 'A'-'Z', '0'-'9', '_', '-', and '.'"
    else:
        return name
    raise InvalidParameter(f"{printable(name, _MOST_SHOWN_OF_NAME)} Reason: {reason}")


def _checked_platform(platform: str | None) -> str:
    if platform is None:
        raise ValidationFailed("platform")
    platform = _OTHER_NAMES.get(platform, platform)
    if platform not in PLATFORMS:
        raise InvalidParameter(f"Platform Reason: {printable(platform)} is not supported")
    return platform


def _checked_attributes(attributes: Mapping[str, str] | None) -> dict[str, str]:
    if not attributes:
        raise ValidationFailed("attributes")
    checked = {}
    for name, value in attributes.items():
        if name not in SETTABLE:
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
    """The value of the attribute Enabled in small letters. Raises InvalidParameter."""
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
    """An ARN of SNS and the parts of its resource between slashes, ``elements`` in number.

    Raises ValidationFailed and InvalidParameter; ``member`` is written as in ValidationFailed.
    """
    if text is None:
        raise ValidationFailed(member)
    name = member[0].upper() + member[1:]
    missing = arns.missing_elements(text)
    if missing is not None:
        raise InvalidParameter(f"{name} Reason: {missing}")
    try:
        arn = arns.parse(text)
    except Malformed:
        raise InvalidParameter(name) from None
    parts = arn.resource.split("/")
    if len(parts) != elements:
        raise InvalidParameter(
            f"{name} Reason: Wrong number of slashes in relative portion of the ARN."
        )
    return arn, parts


def checked_application(text: str | None) -> ApplicationName:
    """The application that an ARN names. Raises ValidationFailed and InvalidParameter."""
    arn, (kind, platform, name) = checked_resource("platformApplicationArn", text, 3)
    if arn.service != "sns" or kind != "app":
        raise InvalidParameter("PlatformApplicationArn")
    return ApplicationName(arn.account_id, arn.region, platform, name)


def _application(call: Call) -> ApplicationName:
    return checked_application(call.members.get("PlatformApplicationArn"))


async def delete_platform_application(call: Call) -> None:
    """One that does not exist is fine."""
    await mobile.delete_application(call.engine, call.caller, _application(call))


async def get_platform_application_attributes(call: Call) -> Members:
    found = await mobile.find_application(call.engine, call.caller, _application(call))
    return {"Attributes": _visible(found)}


def _visible(application: PlatformApplication) -> dict[str, str]:
    """The attributes that may be read: all but the credentials."""
    return {name: value for name, value in application.attributes.items() if name not in SECRETS}


async def set_platform_application_attributes(call: Call) -> None:
    """Set these attributes and leave the others."""
    identity = _application(call)
    attributes = _checked_attributes(call.members.get("Attributes"))
    await mobile.change_application(call.engine, call.caller, identity, attributes)


async def list_platform_applications(call: Call) -> Members:
    size = AWS.topics_page
    after = position_behind(_LISTING, call.members.get("NextToken"))
    found = await mobile.list_applications(call.engine, call.caller, after_id=after, limit=size + 1)
    listed = [
        {"PlatformApplicationArn": application.arn, "Attributes": _visible(application)}
        for application in found[:size]
    ]
    last = str(found[size - 1].application_id) if len(found) > size else None
    token = None if last is None else token_behind(_LISTING, last)
    return {"PlatformApplications": listed, "NextToken": token}


BINDINGS: dict[str, Binding] = {
    "CreatePlatformApplication": create_platform_application,
    "DeletePlatformApplication": delete_platform_application,
    "GetPlatformApplicationAttributes": get_platform_application_attributes,
    "SetPlatformApplicationAttributes": set_platform_application_attributes,
    "ListPlatformApplications": list_platform_applications,
}
