"""Mobile push: what is stored, and many callers at once."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from queuegate.gateway.operations.topics import mobile
from queuegate.storage.storage_errors import NotFound, PushTokenTaken
from tests.operations.conftest import ACCOUNT, REGION
from tests.operations.sns_actions import ask
from tests.operations.world import World

CREDENTIALS = {"PlatformCredential": "the key", "PlatformPrincipal": "the certificate"}
APP = f"arn:aws:sns:{REGION}:{ACCOUNT}:app/APNS/phones"


async def act(world: World, action: str, **members: Any) -> dict[str, Any]:
    return await ask(world.engine, world.caller, action, **members)


async def application(world: World) -> str:
    members = {"Name": "phones", "Platform": "APNS", "Attributes": CREDENTIALS}
    made = await act(world, "CreatePlatformApplication", **members)
    arn: str = made["PlatformApplicationArn"]
    return arn


async def device(world: World, token: str = "token") -> str:
    members = {"PlatformApplicationArn": APP, "Token": token}
    arn: str = (await act(world, "CreatePlatformEndpoint", **members))["EndpointArn"]
    return arn


async def test_credentials_are_kept_and_never_loaded(world: World) -> None:
    await application(world)
    async with world.engine.database.transaction() as tx:
        kept = await tx.fetchval("SELECT attributes FROM platform_applications")
    assert "the key" in kept
    assert "the certificate" in kept
    loaded = await mobile.list_applications(world.engine, world.caller, after_id=0, limit=1)
    assert "the key" not in repr(loaded)


async def test_many_creators_get_one_application_and_one_endpoint(world: World) -> None:
    arns = await asyncio.gather(*(application(world) for _ in range(8)))
    assert set(arns) == {APP}
    devices = await asyncio.gather(*(device(world) for _ in range(8)))
    assert len(set(devices)) == 1


async def test_the_core_says_whose_a_token_is(world: World) -> None:
    await application(world)
    first, second = await device(world, "a"), await device(world, "b")
    with pytest.raises(PushTokenTaken) as refused:
        await mobile.change_endpoint(
            world.engine, world.caller, second, lambda one: ("a", one.attributes)
        )
    assert refused.value.arn == first


async def test_devices_come_while_their_application_goes(world: World) -> None:
    """Either the device is first and goes along, or its application does not exist."""
    for number in range(10):
        await application(world)
        _, *devices = await asyncio.gather(
            act(world, "DeletePlatformApplication", PlatformApplicationArn=APP),
            *(device(world, f"{number} {count}") for count in range(6)),
            return_exceptions=True,
        )
        assert {type(device) for device in devices} <= {str, NotFound}
        for arn in devices:
            if isinstance(arn, str):
                with pytest.raises(NotFound):
                    await act(world, "GetEndpointAttributes", EndpointArn=arn)
