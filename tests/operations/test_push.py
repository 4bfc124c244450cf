"""Mobile push: platform applications and endpoints."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest

from gateway.operations.caller import Caller
from gateway.operations.engine import Engine
from gateway.operations.topics import push_endpoints, push_platforms
from gateway.operations.topics.push_endpoints import (
    CreatePlatformEndpoint,
    ListEndpointsByPlatformApplication,
    SetEndpointAttributes,
    endpoint_for_publish,
)
from gateway.operations.topics.push_platforms import (
    PLATFORMS,
    CreatePlatformApplication,
    SetPlatformApplicationAttributes,
)
from protocol.page_tokens import token_behind
from storage.errors import (
    EndpointDisabled,
    InvalidParameter,
    NotFound,
    PlatformApplicationDisabled,
    Rejected,
    ValidationFailed,
)
from tests.operations.conftest import ACCOUNT, REGION

CREDENTIALS = {"PlatformCredential": "the key", "PlatformPrincipal": "the certificate"}
APP = f"arn:aws:sns:{REGION}:{ACCOUNT}:app/APNS/phones"
NO_DEVICE = (
    f"arn:aws:sns:{REGION}:{ACCOUNT}:endpoint/APNS/phones/{'0' * 8}-0000-4000-8000-{'0' * 12}"
)
OTHER_REGION = Caller(ACCOUNT, "us-east-1", ACCOUNT)
OTHER_ACCOUNT = Caller("999999999999", REGION, "999999999999")


class Push:
    """What the tests do most."""

    def __init__(self, engine: Engine, caller: Caller) -> None:
        self.engine = engine
        self.caller = caller

    async def application(
        self, name: str | None = "phones", platform: str | None = "APNS", **attributes: str
    ) -> str:
        request = CreatePlatformApplication(name, platform, CREDENTIALS | attributes)
        return await push_platforms.create_platform_application(self.engine, self.caller, request)

    async def attributes(self, arn: str) -> dict[str, str]:
        read = push_platforms.get_platform_application_attributes
        return await read(self.engine, self.caller, arn)

    async def set(self, arn: str, attributes: Mapping[str, str]) -> None:
        request = SetPlatformApplicationAttributes(arn, attributes)
        await push_platforms.set_platform_application_attributes(self.engine, self.caller, request)

    async def device(
        self,
        token: str | None = "token",
        user_data: str | None = None,
        *,
        app: str = APP,
        **attributes: str,
    ) -> str:
        request = CreatePlatformEndpoint(app, token, user_data, attributes)
        return await push_endpoints.create_platform_endpoint(self.engine, self.caller, request)

    async def device_attributes(self, arn: str) -> dict[str, str]:
        return await push_endpoints.get_endpoint_attributes(self.engine, self.caller, arn)

    async def set_device(self, arn: str, **attributes: str) -> None:
        request = SetEndpointAttributes(arn, attributes)
        await push_endpoints.set_endpoint_attributes(self.engine, self.caller, request)

    async def devices(self, token: str | None = None) -> push_endpoints.EndpointPage:
        request = ListEndpointsByPlatformApplication(APP, token)
        list_page = push_endpoints.list_endpoints_by_platform_application
        return await list_page(self.engine, self.caller, request)


@pytest.fixture
def push(engine: Engine, caller: Caller) -> Push:
    return Push(engine, caller)


def text(refused: pytest.ExceptionInfo[Rejected]) -> str:
    return str(refused.value)


@pytest.mark.parametrize("platform", sorted(PLATFORMS))
async def test_each_platform_has_applications(push: Push, platform: str) -> None:
    arn = await push.application("phones", platform)
    assert arn == f"arn:aws:sns:{REGION}:{ACCOUNT}:app/{platform}/phones"
    assert await push.attributes(arn) == {"Enabled": "true"}


async def test_fcm_is_gcm_and_needs_no_principal(push: Push) -> None:
    request = CreatePlatformApplication("a", "FCM", {"PlatformCredential": "key"})
    arn = await push_platforms.create_platform_application(push.engine, push.caller, request)
    assert arn.endswith(":app/GCM/a")


async def test_credentials_are_kept_and_never_shown(push: Push, engine: Engine) -> None:
    arn = await push.application()
    async with engine.database.transaction() as tx:
        kept = await tx.fetchval("SELECT attributes FROM platform_applications")
    assert "the key" in kept
    assert "the certificate" in kept
    page = await push_platforms.list_platform_applications(engine, push.caller, None)
    assert "the key" not in repr(page)
    shown = [
        await push.attributes(arn),
        *(push_platforms.visible_attributes(application) for application in page.applications),
    ]
    assert shown == [{"Enabled": "true"}] * 2


async def test_same_application_again_is_the_same(push: Push) -> None:
    arn = await push.application(Enabled="TRUE")
    assert await push.application() == arn
    for changed in ({"PlatformCredential": "other"}, {"Enabled": "false"}):
        with pytest.raises(InvalidParameter) as refused:
            await push.application(**changed)
        assert text(refused) == (
            "Invalid parameter: Name Reason: An application with the same name but different "
            "properties already exists"
        )


async def test_many_creators_get_one_application_and_one_endpoint(push: Push) -> None:
    arns = await asyncio.gather(*(push.application() for _ in range(8)))
    assert set(arns) == {APP}
    devices = await asyncio.gather(*(push.device() for _ in range(8)))
    assert len(set(devices)) == 1


NAME_CHARACTERS = "must contain only characters 'a'-'z', 'A'-'Z', '0'-'9', '_', '-', and '.'"


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("", "cannot be empty"),
        ("a" * 257, "must be at most 256 characters long"),
        ("a/b", NAME_CHARACTERS),
        ("a\n", NAME_CHARACTERS),
        ("é", NAME_CHARACTERS),
    ],
)
async def test_names_of_applications(push: Push, name: str, reason: str) -> None:
    with pytest.raises(InvalidParameter) as refused:
        await push.application(name)
    assert text(refused).endswith(f"Reason: {reason}")


async def test_what_an_application_needs(push: Push) -> None:
    create = push_platforms.create_platform_application
    for member, request in {
        "name": CreatePlatformApplication(None, "APNS", CREDENTIALS),
        "platform": CreatePlatformApplication("a", None, CREDENTIALS),
        "attributes": CreatePlatformApplication("a", "APNS", {}),
    }.items():
        with pytest.raises(ValidationFailed, match=f"Value null at '{member}'"):
            await create(push.engine, push.caller, request)
    with pytest.raises(InvalidParameter, match="Platform Reason: PIGEON is not supported"):
        await push.application("a", "PIGEON")


@pytest.mark.parametrize(
    ("attributes", "reason"),
    [
        ({"PlatformCredential": "a"}, "PlatformCredential attribute provided without"),
        ({"PlatformPrincipal": "a"}, "PlatformPrincipal attribute provided without"),
        ({"Colour": "blue"}, "Invalid attribute name: Colour"),
        ({"Enabled": "yes"}, "Invalid value for attribute: Enabled"),
        ({"SuccessFeedbackSampleRate": "101"}, "Invalid value for attribute: Success"),
        ({"PlatformCredential": "\x00"}, "Invalid value for attribute: PlatformCredential"),
        ({"PlatformCredential": "\ud800"}, "Invalid value for attribute: PlatformCredential"),
        ({"PlatformCredential": "x" * 70_000}, "Invalid value for attribute: PlatformCredential"),
        ({"EventEndpointCreated": "x" * 2049}, "Invalid value for attribute: EventEndpointCreated"),
    ],
)
async def test_attributes_of_applications(
    push: Push, attributes: dict[str, str], reason: str
) -> None:
    request = CreatePlatformApplication("a", "APNS", attributes)
    with pytest.raises(InvalidParameter) as refused:
        await push_platforms.create_platform_application(push.engine, push.caller, request)
    assert text(refused).startswith(f"Invalid parameter: Attributes Reason: {reason}")
    page = await push_platforms.list_platform_applications(push.engine, push.caller, None)
    assert page.applications == []


async def test_attributes_of_an_application_are_merged(push: Push) -> None:
    arn = await push.application(SuccessFeedbackSampleRate="5")
    topic = f"arn:aws:sns:{REGION}:{ACCOUNT}:news"
    await push.set(arn, {"EventEndpointCreated": topic, "Enabled": "False"})
    assert await push.attributes(arn) == {
        "Enabled": "false",
        "EventEndpointCreated": topic,
        "SuccessFeedbackSampleRate": "5",
    }
    with pytest.raises(ValidationFailed):
        await push.set(arn, {})


@pytest.mark.parametrize(
    ("arn", "reason"),
    [
        ("nonsense", "PlatformApplicationArn Reason: An ARN must have at least 6 elements, not 1"),
        ("a:b:c:d:e", "PlatformApplicationArn Reason: An ARN must have at least 6 elements, not 5"),
        (f"arn:aws:sns:{REGION}:{ACCOUNT}:news", "PlatformApplicationArn Reason: Wrong number"),
        (f"arn:aws:sqs:{REGION}:{ACCOUNT}:app/APNS/a", "PlatformApplicationArn"),
        ("a:b:c:d:e:\x00", "PlatformApplicationArn"),
    ],
)
async def test_arns_of_applications(push: Push, arn: str, reason: str) -> None:
    with pytest.raises(InvalidParameter) as refused:
        await push.attributes(arn)
    assert text(refused).startswith(f"Invalid parameter: {reason}")
    with pytest.raises(InvalidParameter):
        await push_platforms.delete_platform_application(push.engine, push.caller, arn)


@pytest.mark.parametrize("stranger", [OTHER_REGION, OTHER_ACCOUNT])
async def test_nobody_else_sees_or_deletes_an_application(
    push: Push, engine: Engine, stranger: Caller
) -> None:
    arn = await push.application()
    device = await push.device()
    with pytest.raises(NotFound, match="PlatformApplication does not exist"):
        await push_platforms.get_platform_application_attributes(engine, stranger, arn)
    with pytest.raises(NotFound, match="Endpoint does not exist"):
        await push_endpoints.get_endpoint_attributes(engine, stranger, device)
    await push_endpoints.delete_endpoint(engine, stranger, device)
    await push_platforms.delete_platform_application(engine, stranger, arn)
    assert await push.device_attributes(device)


async def test_deleted_application_takes_its_endpoints_along(push: Push, engine: Engine) -> None:
    arn = await push.application()
    device = await push.device()
    for _ in range(2):
        await push_platforms.delete_platform_application(engine, push.caller, arn)
    for refused in (
        push.attributes(arn),
        push.device(),
        push.devices(),
        push.set(arn, CREDENTIALS),
    ):
        with pytest.raises(NotFound, match="PlatformApplication does not exist"):
            await refused
    with pytest.raises(NotFound, match="Endpoint does not exist"):
        await push.device_attributes(device)


async def test_listings_have_pages_of_a_hundred(push: Push, engine: Engine) -> None:
    applications = [await push.application(f"app-{number}") for number in range(101)]
    read = push_platforms.list_platform_applications
    first = await read(engine, push.caller, None)
    second = await read(engine, push.caller, first.next_token)
    assert [len(first.applications), len(second.applications)] == [100, 1]
    found = [one.arn for page in (first, second) for one in page.applications]
    assert found == applications
    assert second.next_token is None
    beyond = token_behind("applications", "9" * 18)
    assert (await read(engine, push.caller, beyond)).applications == []
    await push.application()
    devices = [await push.device(f"token {number}") for number in range(101)]
    page = await push.devices()
    rest = await push.devices(page.next_token)
    assert [one.arn for one in (*page.endpoints, *rest.endpoints)] == devices
    assert (len(page.endpoints), rest.next_token) == (100, None)
    for token in ("x", first.next_token, "\ud800", "a" * 300):
        with pytest.raises(InvalidParameter, match="NextToken"):
            await push.devices(token)


# Endpoints


async def test_endpoint_of_a_device(push: Push) -> None:
    await push.application()
    arn = await push.device("token", "Hauke")
    assert arn.startswith(f"arn:aws:sns:{REGION}:{ACCOUNT}:endpoint/APNS/phones/")
    wanted = {"Enabled": "true", "Token": "token", "CustomUserData": "Hauke"}
    assert await push.device_attributes(arn) == wanted
    plain = await push.device("another token", "", Enabled="False")
    assert await push.device_attributes(plain) == {"Enabled": "false", "Token": "another token"}


async def test_same_token_again_is_the_same_endpoint_only_with_the_same_attributes(
    push: Push,
) -> None:
    await push.application()
    arn = await push.device("token", "data", Enabled="true")
    assert await push.device("token", "other data", CustomUserData="data") == arn
    for arguments in ({}, {"CustomUserData": "b"}, {"CustomUserData": "data", "Enabled": "false"}):
        with pytest.raises(InvalidParameter) as refused:
            await push.device("token", **arguments)
        assert text(refused) == (
            f"Invalid parameter: Token Reason: Endpoint {arn} already exists with the same Token, "
            "but different attributes."
        )
    assert len((await push.devices()).endpoints) == 1


@pytest.mark.parametrize(
    ("attributes", "reason"),
    [
        ({"CustomUserData": "é" * 1025}, "Attributes Reason: Invalid value for attribute: Custom"),
        ({"CustomUserData": "\x00"}, "Attributes Reason: Invalid value for attribute: Custom"),
        ({"Enabled": "1"}, "Attributes Reason: Invalid value for attribute: Enabled"),
        ({"Colour": "blue"}, "Attributes Reason: Invalid attribute name: Colour"),
        ({"Token": ""}, "Token Reason: must be between 1 and 2048 bytes"),
        ({"Token": "\ud800"}, "Token Reason: must be between 1 and 2048 bytes"),
        ({"Token": "a" * 401}, "Token Reason: iOS device tokens must be no more than 400"),
    ],
)
async def test_attributes_of_endpoints(push: Push, attributes: dict[str, str], reason: str) -> None:
    await push.application()
    kept = await push.device("kept")
    with pytest.raises(InvalidParameter) as refused:
        await push.device(**{"token": "token", **attributes})
    assert text(refused).startswith(f"Invalid parameter: {reason}")
    with pytest.raises(InvalidParameter) as refused:
        await push.set_device(kept, **attributes)
    assert text(refused).startswith(f"Invalid parameter: {reason}")
    assert await push.device_attributes(kept) == {"Enabled": "true", "Token": "kept"}
    assert len((await push.devices()).endpoints) == 1


async def test_longest_token_and_user_data_are_taken(push: Push) -> None:
    """Also by the index on tokens, whose entries have a limit of their own."""
    app = await push.application("phones", "GCM")
    token = "".join(f"{number * 7919 % 99991:05}" for number in range(409)) + "abc"
    arn = await push.device(token, "é" * 1024, app=app)
    assert (await push.device_attributes(arn))["Token"] == token
    with pytest.raises(InvalidParameter, match="Token Reason"):
        await push.device(token + "x", app=app)
    with pytest.raises(ValidationFailed, match="'token'"):
        await push.device(None, app=app)


async def test_attributes_of_an_endpoint_are_merged(push: Push) -> None:
    await push.application()
    arn = await push.device("old", "data")
    await push.set_device(arn, Token="new", Enabled="FALSE")
    wanted = {"Enabled": "false", "Token": "new", "CustomUserData": "data"}
    assert await push.device_attributes(arn) == wanted
    await push.set_device(arn, CustomUserData="")
    assert await push.device_attributes(arn) == {"Enabled": "false", "Token": "new"}
    with pytest.raises(ValidationFailed, match="'attributes'"):
        await push.set_device(arn)
    with pytest.raises(NotFound, match="Endpoint does not exist"):
        await push.set_device(NO_DEVICE, Enabled="true")


async def test_no_two_endpoints_get_one_token(push: Push) -> None:
    await push.application()
    first, second = await push.device("a"), await push.device("b")
    with pytest.raises(InvalidParameter, match=f"Endpoint {first} already exists"):
        await push.set_device(second, Token="a", Enabled="false")
    assert await push.device_attributes(second) == {"Enabled": "true", "Token": "b"}


async def test_endpoint_can_be_deleted_again_and_again(push: Push, engine: Engine) -> None:
    await push.application()
    arn = await push.device()
    for _ in range(2):
        await push_endpoints.delete_endpoint(engine, push.caller, arn)
    for missing in (arn, NO_DEVICE, arn.replace("phones", "other"), arn[:-1], arn.upper()[:-36]):
        with pytest.raises((NotFound, InvalidParameter)):
            await push.device_attributes(missing)
    with pytest.raises(InvalidParameter, match="EndpointArn Reason: An ARN must have at least 6"):
        await push_endpoints.delete_endpoint(engine, push.caller, "nonsense")
    with pytest.raises(ValidationFailed, match="'endpointArn'"):
        await push_endpoints.delete_endpoint(engine, push.caller, None)


async def test_whole_arn_of_an_endpoint_has_to_be_right(push: Push) -> None:
    await push.application()
    arn = await push.device()
    for wrong in (arn.replace("phones", "other"), arn.replace("APNS", "GCM")):
        with pytest.raises(NotFound):
            await push.device_attributes(wrong)


# Publish


async def test_publish_finds_the_endpoint(push: Push, engine: Engine) -> None:
    await push.application()
    arn = await push.device()
    endpoint = await endpoint_for_publish(engine, push.caller, arn)
    assert (endpoint.arn, endpoint.platform, endpoint.token) == (arn, "APNS", "token")


@pytest.mark.parametrize(
    "arn", [NO_DEVICE, APP, f"arn:aws:sns:{REGION}:{ACCOUNT}:news", "a:b:c:d:e:f", NO_DEVICE + "/a"]
)
async def test_publish_to_what_is_no_endpoint(push: Push, engine: Engine, arn: str) -> None:
    with pytest.raises(InvalidParameter) as refused:
        await endpoint_for_publish(engine, push.caller, arn)
    assert text(refused) == (
        "Invalid parameter: TargetArn Reason: No endpoint found for the target arn specified"
    )


async def test_publish_to_what_is_no_arn(push: Push, engine: Engine) -> None:
    with pytest.raises(InvalidParameter, match="TargetArn Reason: An ARN must have at least 6"):
        await endpoint_for_publish(engine, push.caller, "nonsense")


async def test_publish_to_what_is_disabled(push: Push, engine: Engine) -> None:
    app = await push.application()
    arn = await push.device(Enabled="false")
    with pytest.raises(EndpointDisabled, match="Endpoint is disabled"):
        await endpoint_for_publish(engine, push.caller, arn)
    await push.set_device(arn, Enabled="true")
    await push.set(app, {"Enabled": "false"})
    with pytest.raises(PlatformApplicationDisabled):
        await endpoint_for_publish(engine, push.caller, arn)
    await push.set(app, {"Enabled": "true"})
    assert await endpoint_for_publish(engine, push.caller, arn)


async def test_devices_come_while_their_application_goes(push: Push, engine: Engine) -> None:
    """Either the device is first and goes along, or its application does not exist."""
    for number in range(10):
        await push.application()
        _, *devices = await asyncio.gather(
            push_platforms.delete_platform_application(engine, push.caller, APP),
            *(push.device(f"{number} {device}") for device in range(6)),
            return_exceptions=True,
        )
        assert {type(device) for device in devices} <= {str, NotFound}
        for device in devices:
            if isinstance(device, str):
                with pytest.raises(NotFound):
                    await push.device_attributes(device)
