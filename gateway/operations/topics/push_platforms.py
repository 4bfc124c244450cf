"""Mobile push: platform applications (docs/contract/sns.md 3.9). Nothing is pushed: see the outbox.

Credentials of push services are kept, and told to nobody.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gateway.operations.caller import Caller
from gateway.operations.topics.pages import position_behind
from protocol import arns
from protocol.errors import Malformed
from protocol.names import invalid_characters, printable
from protocol.page_tokens import token_behind
from storage.errors import InvalidParameter, NotFound, Unavailable, ValidationFailed
from storage.topics import platforms
from storage.topics.platforms import ApplicationName, PlatformApplication

if TYPE_CHECKING:
    from gateway.operations.engine import Engine
    from storage.database import Transaction

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
_SECRETS = frozenset({"PlatformCredential", "PlatformPrincipal"})
_ATTRIBUTES = _SECRETS | {
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
_MOST_NAME_CHARACTERS = 256
# AWS repeats all of a name that is too long (docs/contract/sns.md 3.9).
_MOST_SHOWN_OF_NAME = 2_048
_MOST_SECRET_CHARACTERS = 65_536
_MOST_VALUE_CHARACTERS = 2_048
_CREATE_ATTEMPTS = 5
_LISTING = "applications"


@dataclass(frozen=True, slots=True)
class CreatePlatformApplication:
    name: str | None
    platform: str | None
    attributes: Mapping[str, str] | None


async def create_platform_application(
    engine: Engine, caller: Caller, request: CreatePlatformApplication
) -> str:
    """The ARN of the new application, or of the existing one with the same attributes.

    Raises ValidationFailed and InvalidParameter.
    """
    name = _checked_name(request.name)
    platform = _checked_platform(request.platform)
    attributes = {"Enabled": "true"} | _checked_attributes(request.attributes)
    _check_credentials(platform, attributes)
    identity = ApplicationName(caller.account_id, caller.region, platform, name)
    for _ in range(_CREATE_ATTEMPTS):
        async with engine.database.transaction() as tx:
            now = engine.clock.of(caller.account_id).now()
            application = await platforms.create_application(tx, now, identity, attributes)
            if application is None:
                application = await platforms.find_application(tx, identity)
                if application is not None and application.attributes != attributes:
                    raise InvalidParameter(
                        "Name Reason: An application with the same name but different properties "
                        "already exists"
                    )
        if application is not None:
            return application.arn
    raise Unavailable("The application is being created and deleted by others.")


def _checked_name(name: str | None) -> str:
    if name is None:
        raise ValidationFailed("name")
    if not name:
        reason = "cannot be empty"
    elif len(name) > _MOST_NAME_CHARACTERS:
        reason = f"must be at most {_MOST_NAME_CHARACTERS} characters long"
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
        if name not in _ATTRIBUTES:
            raise InvalidParameter(f"Attributes Reason: Invalid attribute name: {printable(name)}")
        checked[name] = checked_switch(value) if name == "Enabled" else value
        is_secret = name in _SECRETS
        too_large = len(value) > (_MOST_SECRET_CHARACTERS if is_secret else _MOST_VALUE_CHARACTERS)
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


async def found_application(
    tx: Transaction, caller: Caller, identity: ApplicationName
) -> PlatformApplication:
    """The caller's application, not deleted until the transaction ends. Raises NotFound."""
    application = None
    if identity[:2] == (caller.account_id, caller.region):
        application = await platforms.find_application(tx, identity)
    if application is None:
        raise NotFound("PlatformApplication does not exist")
    return application


async def delete_platform_application(engine: Engine, caller: Caller, arn: str | None) -> None:
    """Delete it and its endpoints; one that does not exist is fine."""
    identity = checked_application(arn)
    if identity[:2] == (caller.account_id, caller.region):
        async with engine.database.transaction() as tx:
            await platforms.delete_application(tx, identity)


async def get_platform_application_attributes(
    engine: Engine, caller: Caller, arn: str | None
) -> dict[str, str]:
    """All attributes but the credentials. Raises NotFound and the refusals of ARNs."""
    identity = checked_application(arn)
    async with engine.database.transaction() as tx:
        return visible_attributes(await found_application(tx, caller, identity))


def visible_attributes(application: PlatformApplication) -> dict[str, str]:
    """The attributes that may be read."""
    return {name: value for name, value in application.attributes.items() if name not in _SECRETS}


@dataclass(frozen=True, slots=True)
class SetPlatformApplicationAttributes:
    application_arn: str | None
    attributes: Mapping[str, str] | None


async def set_platform_application_attributes(
    engine: Engine, caller: Caller, request: SetPlatformApplicationAttributes
) -> None:
    """Set these attributes and leave the others. Raises NotFound and the refusals of both."""
    identity = checked_application(request.application_arn)
    attributes = _checked_attributes(request.attributes)
    async with engine.database.transaction() as tx:
        application = await found_application(tx, caller, identity)
        await platforms.merge_application_attributes(tx, application.application_id, attributes)


@dataclass(frozen=True, slots=True)
class ApplicationPage:
    """``next_token`` None: there are no more."""

    applications: list[PlatformApplication]
    next_token: str | None


async def list_platform_applications(
    engine: Engine, caller: Caller, next_token: str | None
) -> ApplicationPage:
    """The caller's applications in order of creation. Raises InvalidParameter."""
    size = engine.limits.sns_page
    after = position_behind(_LISTING, next_token)
    async with engine.database.transaction() as tx:
        found = await platforms.list_applications(
            tx, caller.account_id, caller.region, after_application_id=after, limit=size + 1
        )
    token = None
    if len(found) > size:
        token = token_behind(_LISTING, str(found[size - 1].application_id))
    return ApplicationPage(found[:size], token)
