"""Mobile push: endpoints, each a device of a platform application (docs/contract/sns.md 3.9).

Tokens of devices may be any text: testers make them up.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from uuid import UUID, uuid4

from gateway.operations.caller import Caller
from gateway.operations.topics.pages import position_behind
from gateway.operations.topics.push_platforms import (
    checked_application,
    checked_resource,
    checked_switch,
    found_application,
)
from protocol import arns
from protocol.names import invalid_characters, printable
from protocol.page_tokens import token_behind
from storage.errors import (
    EndpointDisabled,
    InvalidParameter,
    NotFound,
    PlatformApplicationDisabled,
    Unavailable,
    ValidationFailed,
)
from storage.topics import platforms
from storage.topics.platforms import PlatformEndpoint

if TYPE_CHECKING:
    from gateway.operations.engine import Engine

_ATTRIBUTES = frozenset({"CustomUserData", "Enabled", "Token"})
_MOST_USER_DATA_BYTES = 2048
_MOST_TOKEN_BYTES = 2048
_MOST_APPLE_TOKEN_CHARACTERS = 400
_APPLE = ("APNS", "MACOS")
_ENDPOINT_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_CREATE_ATTEMPTS = 5
_LISTING = "endpoints"


@dataclass(frozen=True, slots=True)
class CreatePlatformEndpoint:
    """CustomUserData may be given on its own or as an attribute, which wins."""

    application_arn: str | None
    token: str | None
    custom_user_data: str | None = None
    attributes: Mapping[str, str] = field(default_factory=dict)


async def create_platform_endpoint(
    engine: Engine, caller: Caller, request: CreatePlatformEndpoint
) -> str:
    """The ARN of the new endpoint, or of the one with the same token and attributes.

    Raises ValidationFailed, NotFound, and InvalidParameter, also when there is one with the same
    token and other attributes: clients find its ARN in the text.
    """
    identity = checked_application(request.application_arn)
    if request.token is None:
        raise ValidationFailed("token")
    given = _checked_attributes({"Token": request.token, **request.attributes})
    token = _checked_token(given.pop("Token"), identity.platform)
    user_data = request.custom_user_data
    if user_data is not None and "CustomUserData" not in given:
        given |= _checked_attributes({"CustomUserData": user_data})
    attributes = _stored({"Enabled": "true"} | given)
    for _ in range(_CREATE_ATTEMPTS):
        async with engine.database.transaction() as tx:
            application = await found_application(tx, caller, identity)
            endpoint_id = uuid4()
            if await platforms.create_endpoint(
                tx,
                engine.clock.of(caller.account_id).now(),
                application.application_id,
                endpoint_id=endpoint_id,
                token=token,
                attributes=attributes,
            ):
                return platforms.endpoint_arn(identity, endpoint_id)
            existing = await platforms.find_endpoint_by_token(tx, application.application_id, token)
        if existing is not None:
            if existing.attributes != attributes:
                raise _token_is_taken(existing.arn)
            return existing.arn
    raise Unavailable("The endpoint is being created and deleted by others.")


def _checked_attributes(attributes: Mapping[str, str]) -> dict[str, str]:
    checked = {}
    for name, value in attributes.items():
        if name not in _ATTRIBUTES:
            raise InvalidParameter(f"Attributes Reason: Invalid attribute name: {printable(name)}")
        checked[name] = checked_switch(value) if name == "Enabled" else value
    user_data = checked.get("CustomUserData", "")
    if invalid_characters(user_data):
        raise InvalidParameter("Attributes Reason: Invalid value for attribute: CustomUserData")
    if len(user_data.encode()) > _MOST_USER_DATA_BYTES:
        raise InvalidParameter(
            "Attributes Reason: Invalid value for attribute: CustomUserData: must be at most "
            f"{_MOST_USER_DATA_BYTES} bytes long in UTF-8 encoding"
        )
    return checked


def _checked_token(token: str, platform: str) -> str:
    if not token or invalid_characters(token) or len(token.encode()) > _MOST_TOKEN_BYTES:
        raise InvalidParameter(
            f"Token Reason: must be between 1 and {_MOST_TOKEN_BYTES} bytes long in UTF-8 encoding"
        )
    if platform.startswith(_APPLE) and len(token) > _MOST_APPLE_TOKEN_CHARACTERS:
        raise InvalidParameter(
            "Token Reason: iOS device tokens must be no more than "
            f"{_MOST_APPLE_TOKEN_CHARACTERS} hexadecimal characters"
        )
    return token


def _stored(attributes: Mapping[str, str]) -> dict[str, str]:
    """Without user data that is empty: that means none."""
    return {name: value for name, value in attributes.items() if value}


def _token_is_taken(arn: str) -> InvalidParameter:
    return InvalidParameter(
        f"Token Reason: Endpoint {arn} already exists with the same Token, but different "
        "attributes."
    )


def _checked_endpoint(text: str | None) -> UUID | None:
    """The id in an endpoint's ARN; None when no endpoint can have it."""
    arn, (kind, _, _, last) = checked_resource("endpointArn", text, 4)
    if arn.service != "sns" or kind != "endpoint":
        raise InvalidParameter("EndpointArn")
    return endpoint_id_of(last)


def _owned(
    caller: Caller, endpoint: PlatformEndpoint | None, arn: str | None
) -> PlatformEndpoint | None:
    """The endpoint if it is the caller's and all of the ARN is right."""
    if endpoint is None or endpoint.arn != arn:
        return None
    is_own = (endpoint.account_id, endpoint.region) == (caller.account_id, caller.region)
    return endpoint if is_own else None


async def find_missing(engine: Engine, arn_texts: Iterable[str]) -> set[str]:
    """Those of the ARNs, which are well-formed, whose endpoint is not there (any more)."""
    ids = {text: endpoint_id_of(text) for text in arn_texts}
    existing: set[UUID | None] = set()
    if wanted := {one for one in ids.values() if one is not None}:
        async with engine.database.transaction() as tx:
            existing |= await platforms.existing_endpoints(tx, wanted)
    return {text for text, one in ids.items() if one not in existing}


def endpoint_id_of(arn_text: str) -> UUID | None:
    """What the ARN of an endpoint ends with; None when no endpoint can have it."""
    last = arn_text.rpartition("/")[2]
    return UUID(last) if _ENDPOINT_ID.fullmatch(last) else None


async def delete_endpoint(engine: Engine, caller: Caller, arn: str | None) -> None:
    """Delete it; one that does not exist is fine."""
    endpoint_id = _checked_endpoint(arn)
    if endpoint_id is None:
        return
    async with engine.database.transaction() as tx:
        endpoint = _owned(caller, await platforms.lock_endpoint(tx, endpoint_id), arn)
        if endpoint is not None:
            await platforms.delete_endpoint(tx, endpoint_id)


async def get_endpoint_attributes(
    engine: Engine, caller: Caller, arn: str | None
) -> dict[str, str]:
    """Enabled, Token, and CustomUserData if there is some. Raises NotFound."""
    endpoint_id = _checked_endpoint(arn)
    return visible_attributes(await _find(engine, caller, endpoint_id, arn))


async def _find(
    engine: Engine, caller: Caller, endpoint_id: UUID | None, arn: str | None
) -> PlatformEndpoint:
    endpoint = None
    if endpoint_id is not None:
        async with engine.database.transaction() as tx:
            endpoint = _owned(caller, await platforms.find_endpoint(tx, endpoint_id), arn)
    if endpoint is None:
        raise NotFound("Endpoint does not exist")
    return endpoint


def visible_attributes(endpoint: PlatformEndpoint) -> dict[str, str]:
    """The attributes as they are read."""
    shown_first = {"Enabled": endpoint.attributes["Enabled"], "Token": endpoint.token}
    return {**shown_first, **endpoint.attributes}


@dataclass(frozen=True, slots=True)
class SetEndpointAttributes:
    endpoint_arn: str | None
    attributes: Mapping[str, str] | None


async def set_endpoint_attributes(
    engine: Engine, caller: Caller, request: SetEndpointAttributes
) -> None:
    """Set these attributes and leave the others.

    Raises NotFound, ValidationFailed and InvalidParameter, also for the token of another endpoint
    of the application.
    """
    endpoint_id = _checked_endpoint(request.endpoint_arn)
    if not request.attributes:
        raise ValidationFailed("attributes")
    changes = _checked_attributes(request.attributes)
    async with engine.database.transaction() as tx:
        endpoint = None
        if endpoint_id is not None:
            found = await platforms.lock_endpoint(tx, endpoint_id)
            endpoint = _owned(caller, found, request.endpoint_arn)
        if endpoint is None:
            raise NotFound("Endpoint does not exist")
        token = _checked_token(changes.pop("Token", endpoint.token), endpoint.platform)
        attributes = _stored({**endpoint.attributes, **changes})
        if not await platforms.set_endpoint(tx, endpoint.endpoint_id, token, attributes):
            other = await platforms.find_other_with_token(tx, endpoint.endpoint_id, token)
            if other is None:
                raise Unavailable("The endpoint with this token is just being deleted.")
            taken = endpoint.arn.rpartition("/")[0] + f"/{other}"
            raise _token_is_taken(taken)


@dataclass(frozen=True, slots=True)
class ListEndpointsByPlatformApplication:
    application_arn: str | None
    next_token: str | None = None


@dataclass(frozen=True, slots=True)
class EndpointPage:
    """``next_token`` None: there are no more."""

    endpoints: list[PlatformEndpoint]
    next_token: str | None


async def list_endpoints_by_platform_application(
    engine: Engine, caller: Caller, request: ListEndpointsByPlatformApplication
) -> EndpointPage:
    """Endpoints in order of creation. Raises NotFound and InvalidParameter."""
    identity = checked_application(request.application_arn)
    after = position_behind(_LISTING, request.next_token)
    size = engine.limits.sns_page
    async with engine.database.transaction() as tx:
        application = await found_application(tx, caller, identity)
        found = await platforms.list_endpoints(
            tx, application.application_id, after_position=after, limit=size + 1
        )
    token = None
    if len(found) > size:
        token = token_behind(_LISTING, str(found[size - 1].position))
    return EndpointPage(found[:size], token)


async def endpoint_for_publish(engine: Engine, caller: Caller, target_arn: str) -> PlatformEndpoint:
    """The endpoint that a message to a TargetArn goes to.

    Raises InvalidParameter, EndpointDisabled and PlatformApplicationDisabled.
    """
    missing = arns.missing_elements(target_arn)
    if missing is not None:
        raise InvalidParameter(f"TargetArn Reason: {missing}")
    try:
        endpoint_id = _checked_endpoint(target_arn)
        endpoint = await _find(engine, caller, endpoint_id, target_arn)
    except (NotFound, InvalidParameter):
        raise InvalidParameter(
            "TargetArn Reason: No endpoint found for the target arn specified"
        ) from None
    if not endpoint.is_application_enabled:
        raise PlatformApplicationDisabled("Platform application is disabled")
    if endpoint.attributes["Enabled"] != "true":
        raise EndpointDisabled("Endpoint is disabled")
    return endpoint
