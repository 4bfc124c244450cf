"""Mobile push: platform applications and endpoints."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from queuegate.gateway.faces.aws.aws_refusals import (
    InvalidParameter,
    ValidationFailed,
)
from queuegate.gateway.faces.aws.sns.mobile_push import PLATFORMS, endpoint_for_publish
from queuegate.gateway.operations.access.caller import Caller
from queuegate.gateway.operations.runtime.engine import Engine
from queuegate.gateway.operations.topics import mobile as core
from queuegate.protocol.opaque_tokens import token_behind
from queuegate.storage.storage_errors import NotFound, PushTokenTaken, Rejected
from tests.operations.conftest import ACCOUNT, REGION
from tests.operations.sns_actions import ask
from tests.operations.world import World

CREDENTIALS = {"PlatformCredential": "the key", "PlatformPrincipal": "the certificate"}
APP = f"arn:aws:sns:{REGION}:{ACCOUNT}:app/APNS/phones"
NO_DEVICE = (
    f"arn:aws:sns:{REGION}:{ACCOUNT}:endpoint/APNS/phones/{'0' * 8}-0000-4000-8000-{'0' * 12}"
)
OTHER_REGION = Caller(ACCOUNT, "us-east-1", ACCOUNT)
OTHER_ACCOUNT = Caller("999999999999", REGION, "999999999999")


class Push(World):
    """Common steps of the tests of push."""

    async def application(
        self, name: str | None = "phones", platform: str | None = "APNS", **attributes: str
    ) -> str:
        return await self.create(name, platform, CREDENTIALS | attributes)

    async def ask(self, action: str, **members: Any) -> dict[str, Any]:
        return await ask(self.engine, self.caller, action, **members)

    async def create(
        self, name: str | None, platform: str | None, attributes: Mapping[str, str]
    ) -> str:
        made = await self.ask(
            "CreatePlatformApplication", Name=name, Platform=platform, Attributes=attributes
        )
        arn: str = made["PlatformApplicationArn"]
        return arn

    async def delete(self, arn: str | None) -> None:
        await self.ask("DeletePlatformApplication", PlatformApplicationArn=arn)

    async def attributes(self, arn: str | None) -> dict[str, str]:
        found = await self.ask("GetPlatformApplicationAttributes", PlatformApplicationArn=arn)
        attributes: dict[str, str] = found["Attributes"]
        return attributes

    async def set(self, arn: str, attributes: Mapping[str, str]) -> None:
        await self.ask(
            "SetPlatformApplicationAttributes", PlatformApplicationArn=arn, Attributes=attributes
        )

    async def applications(self, token: str | None = None) -> tuple[list[Any], str | None]:
        page = await self.ask("ListPlatformApplications", NextToken=token)
        return page["PlatformApplications"], page["NextToken"]

    async def device(
        self,
        token: str | None = "token",
        user_data: str | None = None,
        *,
        app: str = APP,
        **attributes: str,
    ) -> str:
        made = await self.ask(
            "CreatePlatformEndpoint",
            PlatformApplicationArn=app,
            Token=token,
            CustomUserData=user_data,
            Attributes=attributes,
        )
        arn: str = made["EndpointArn"]
        return arn

    async def device_attributes(self, arn: str | None) -> dict[str, str]:
        found = await self.ask("GetEndpointAttributes", EndpointArn=arn)
        attributes: dict[str, str] = found["Attributes"]
        return attributes

    async def set_device(self, arn: str, **attributes: str) -> None:
        await self.ask("SetEndpointAttributes", EndpointArn=arn, Attributes=attributes)

    async def delete_device(self, arn: str | None) -> None:
        await self.ask("DeleteEndpoint", EndpointArn=arn)

    async def devices(self, token: str | None = None) -> tuple[list[Any], str | None]:
        page = await self.ask(
            "ListEndpointsByPlatformApplication", PlatformApplicationArn=APP, NextToken=token
        )
        return page["Endpoints"], page["NextToken"]


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
    arn = await push.create("a", "FCM", {"PlatformCredential": "key"})
    assert arn.endswith(":app/GCM/a")


async def test_credentials_are_kept_and_never_shown(push: Push, engine: Engine) -> None:
    arn = await push.application()
    async with engine.database.transaction() as tx:
        kept = await tx.fetchval("SELECT attributes FROM platform_applications")
    assert "the key" in kept
    assert "the certificate" in kept
    kept_for_us = await core.list_applications(engine, push.caller, after_id=0, limit=1)
    assert "the key" not in repr(kept_for_us)
    [listed], _ = await push.applications()
    shown = [await push.attributes(arn), listed["Attributes"]]
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
    with pytest.raises(ValidationFailed, match="Value null at 'name'"):
        await push.create(None, "APNS", CREDENTIALS)
    with pytest.raises(ValidationFailed, match="Value null at 'platform'"):
        await push.create("a", None, CREDENTIALS)
    with pytest.raises(ValidationFailed, match="Value null at 'attributes'"):
        await push.create("a", "APNS", {})
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
    with pytest.raises(InvalidParameter) as refused:
        await push.create("a", "APNS", attributes)
    assert text(refused).startswith(f"Invalid parameter: Attributes Reason: {reason}")
    assert await push.applications() == ([], None)


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
        await push.delete(arn)


@pytest.mark.parametrize("stranger", [OTHER_REGION, OTHER_ACCOUNT])
async def test_nobody_else_sees_or_deletes_an_application(push: Push, stranger: Caller) -> None:
    arn = await push.application()
    device = await push.device()
    other = Push(push.engine, stranger)
    with pytest.raises(NotFound, match="PlatformApplication does not exist"):
        await other.attributes(arn)
    with pytest.raises(NotFound, match="Endpoint does not exist"):
        await other.device_attributes(device)
    await other.delete_device(device)
    await other.delete(arn)
    assert await push.device_attributes(device)


async def test_deleted_application_takes_its_endpoints_along(push: Push, engine: Engine) -> None:
    arn = await push.application()
    device = await push.device()
    for _ in range(2):
        await push.delete(arn)
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
    first, first_token = await push.applications()
    second, second_token = await push.applications(first_token)
    assert [len(first), len(second)] == [100, 1]
    assert [one["PlatformApplicationArn"] for one in (*first, *second)] == applications
    assert second_token is None
    beyond = token_behind("applications", "9" * 18)
    assert await push.applications(beyond) == ([], None)
    await push.application()
    devices = [await push.device(f"token {number}") for number in range(101)]
    page, page_token = await push.devices()
    rest, rest_token = await push.devices(page_token)
    assert [one["EndpointArn"] for one in (*page, *rest)] == devices
    assert (len(page), rest_token) == (100, None)
    for token in ("x", first_token, "\ud800", "a" * 300):
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
    assert len((await push.devices())[0]) == 1


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
    assert len((await push.devices())[0]) == 1


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


async def test_the_core_says_whose_a_token_is(push: Push, engine: Engine) -> None:
    await push.application()
    first, second = await push.device("a"), await push.device("b")
    with pytest.raises(PushTokenTaken) as refused:
        await core.change_endpoint(engine, push.caller, second, lambda one: ("a", one.attributes))
    assert refused.value.arn == first


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
        await push.delete_device(arn)
    for missing in (arn, NO_DEVICE, arn.replace("phones", "other"), arn[:-1], arn.upper()[:-36]):
        with pytest.raises((NotFound, InvalidParameter)):
            await push.device_attributes(missing)
    with pytest.raises(InvalidParameter, match="EndpointArn Reason: An ARN must have at least 6"):
        await push.delete_device("nonsense")
    with pytest.raises(ValidationFailed, match="'endpointArn'"):
        await push.delete_device(None)


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


async def test_devices_come_while_their_application_goes(push: Push, engine: Engine) -> None:
    """Either the device is first and goes along, or its application does not exist."""
    for number in range(10):
        await push.application()
        _, *devices = await asyncio.gather(
            push.delete(APP),
            *(push.device(f"{number} {device}") for device in range(6)),
            return_exceptions=True,
        )
        assert {type(device) for device in devices} <= {str, NotFound}
        for device in devices:
            if isinstance(device, str):
                with pytest.raises(NotFound):
                    await push.device_attributes(device)
