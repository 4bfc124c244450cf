"""Keys that sign: what is stored of them, who changes them, and which secrets are good."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest

from queuegate.gateway.operations.access.api_keys import (
    NewApiKey,
    change_key,
    create_key,
    find_key,
    list_keys,
    revoke_key,
    rotate_key,
)
from queuegate.gateway.operations.access.caller import Caller
from queuegate.gateway.operations.access.key_cache import (
    KeySecrets,
    ReencryptedSecrets,
    WrongMasterKey,
    move,
    opens_all,
)
from queuegate.gateway.operations.runtime.engine import Engine
from queuegate.storage import stored_keys as stored
from queuegate.storage.database import Database
from queuegate.storage.model import ACCESS, API, Key
from queuegate.storage.storage_errors import (
    AuthorizationError,
    KeyDoesNotExist,
    KeyExists,
    KeyUnfit,
    Unavailable,
)
from tests.operations.world import TestClock, World
from tests.waiting import until_async, until_so

SHOP = NewApiKey("shop", kind=ACCESS)
OTHER_ACCOUNT = "999988887777"


@pytest.fixture
def administrator(engine: Engine, caller: Caller) -> Caller:
    engine.keys.secrets = KeySecrets(b"m" * 32)
    return replace(caller, is_administrator=True)


def secrets_of(engine: Engine, key: Key) -> tuple[str, ...]:
    found = engine.keys.find_access(key.access_key or "")
    return () if found is None else found.secrets


async def test_its_secret_is_stored_encrypted(world: World, administrator: Caller) -> None:
    key, secret = await create_key(world.engine, administrator, SHOP)
    assert (key.kind, len(key.access_key or ""), len(secret)) == (ACCESS, 20, 40)
    assert secrets_of(world.engine, key) == (secret,)
    async with world.engine.database.transaction() as tx:
        [(access_key, closed)] = await stored.sealed(tx, 10)
        assert access_key == key.access_key
        assert secret.encode() not in closed
        assert await opens_all(tx, KeySecrets(b"m" * 32))
        assert not await opens_all(tx, KeySecrets(b"n" * 32))
        await stored.revoke(tx, None, None, key.key_id)
        assert await stored.sealed(tx, 10) == []


def test_a_secret_is_bound_to_its_key() -> None:
    secrets = KeySecrets(b"m" * 32)
    closed = secrets.close("AKQGONE", "secret")
    assert secrets.open("AKQGONE", closed) == "secret"
    assert closed != secrets.close("AKQGONE", "secret")
    for access_key, text in (("AKQGTWO", closed), ("AKQGONE", closed[:-1]), ("AKQGONE", b"")):
        with pytest.raises(WrongMasterKey):
            secrets.open(access_key, text)


async def test_without_a_master_key_there_is_none(engine: Engine, administrator: Caller) -> None:
    key, _ = await create_key(engine, administrator, SHOP)
    engine.keys.secrets = None
    await engine.keys.load()
    assert secrets_of(engine, key) == ()
    for attempt in (
        create_key(engine, administrator, SHOP._replace(name="more")),
        rotate_key(engine, administrator, key.key_id, 0),
    ):
        with pytest.raises(KeyUnfit, match="QUEUEGATE_MASTER_KEY"):
            await attempt


async def test_with_a_wrong_master_key_none_is_made_or_taken(
    engine: Engine, administrator: Caller, caplog: pytest.LogCaptureFixture
) -> None:
    key, secret = await create_key(engine, administrator, SHOP)
    engine.keys.secrets = KeySecrets(b"n" * 32)
    await engine.keys.load()
    assert secrets_of(engine, key) == ()
    assert f"key {key.key_id} is not taken" in caplog.text
    assert secret not in caplog.text
    with pytest.raises(KeyUnfit, match="not the one"):
        await create_key(engine, administrator, SHOP._replace(name="more"))


async def test_secrets_go_over_to_another_master_key(
    engine: Engine, administrator: Caller, database: Database
) -> None:
    """Meanwhile gateways have both, and what is new is encrypted as the others are."""
    both = KeySecrets(b"m" * 32, b"n" * 32)
    engine.keys.secrets = both
    key, first = await create_key(engine, administrator, SHOP)
    _, second = await rotate_key(engine, administrator, key.key_id, 3600)
    async with database.transaction() as tx:
        assert await opens_all(tx, KeySecrets(b"m" * 32))
        with pytest.raises(WrongMasterKey):
            await move(tx, KeySecrets(b"n" * 32))
        assert await move(tx, both) == ReencryptedSecrets(1, 1)
        assert await move(tx, both) == ReencryptedSecrets(0, 1)
    more, third = await create_key(engine, administrator, SHOP._replace(name="more"))
    async with database.transaction() as tx:
        assert await opens_all(tx, KeySecrets(b"n" * 32))
    for now in (both, KeySecrets(b"n" * 32)):
        engine.keys.secrets = now
        await engine.keys.load()
        assert (secrets_of(engine, key), secrets_of(engine, more)) == ((second, first), (third,))
    engine.keys.secrets = KeySecrets(b"m" * 32)
    with pytest.raises(KeyUnfit, match="not the one"):
        await create_key(engine, administrator, SHOP._replace(name="less"))


async def test_a_key_that_is_made_meanwhile_is_encrypted_as_the_others(
    engine: Engine, administrator: Caller, database: Database
) -> None:
    both = KeySecrets(b"m" * 32, b"n" * 32)
    engine.keys.secrets = both
    await create_key(engine, administrator, SHOP)
    async with database.transaction() as tx:
        await move(tx, both)
        making = asyncio.ensure_future(create_key(engine, administrator, SHOP._replace(name="b")))
        await until_waiting(database)
    await making
    async with database.transaction() as tx:
        assert await opens_all(tx, KeySecrets(b"n" * 32))


async def until_waiting(database: Database) -> None:
    """Until a statement waits for a lock."""

    async def waiting() -> int:
        async with database.transaction() as tx:
            found: int = await tx.fetchval("SELECT count(*)::int FROM pg_locks WHERE NOT granted")
            return found

    await until_async(waiting)


async def test_two_secrets_are_good_for_a_while(world: World, administrator: Caller) -> None:
    key, first = await create_key(world.engine, administrator, SHOP)
    rotated, second = await rotate_key(world.engine, administrator, key.key_id, 3600)
    assert rotated.access_key == key.access_key
    assert secrets_of(world.engine, key) == (second, first)
    world.clock.move_on(3599)
    assert secrets_of(world.engine, key) == (second, first)
    world.clock.move_on(1)
    assert secrets_of(world.engine, key) == (second,)
    _, third = await rotate_key(world.engine, administrator, key.key_id, 3600)
    assert secrets_of(world.engine, key) == (third, second)
    _, fourth = await rotate_key(world.engine, administrator, key.key_id, 0)
    assert secrets_of(world.engine, key) == (fourth,)


async def test_it_ends_when_it_expires_or_is_disabled_or_revoked(
    engine: Engine, administrator: Caller, clock: TestClock
) -> None:
    expires_at = clock.instant() + timedelta(hours=1)
    brief, _ = await create_key(engine, administrator, SHOP._replace(expires_at=expires_at))
    key, secret = await create_key(engine, administrator, SHOP._replace(name="long"))
    clock.move_on(3600)
    assert secrets_of(engine, brief) == ()
    await change_key(engine, administrator, key.key_id, is_disabled=True)
    assert secrets_of(engine, key) == ()
    await change_key(engine, administrator, key.key_id, is_disabled=False)
    assert secrets_of(engine, key) == (secret,)
    await revoke_key(engine, administrator, key.key_id)
    assert secrets_of(engine, key) == ()
    for attempt in (
        change_key(engine, administrator, key.key_id, is_disabled=False),
        rotate_key(engine, administrator, key.key_id, 0),
    ):
        with pytest.raises(KeyDoesNotExist):
            await attempt


async def test_a_change_leaves_no_gap(
    engine: Engine, administrator: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until it is read again it is as it was; but not for long, for it may be revoked."""
    key, secret = await create_key(engine, administrator, SHOP)
    engine.keys.changed(key.key_id)
    assert secrets_of(engine, key) == (secret,)
    await engine.keys.settle()
    assert secrets_of(engine, key) == (secret,)

    async def away(*_: object) -> None:
        raise Unavailable("away")

    with monkeypatch.context() as patch:
        patch.setattr(stored, "live", away)
        engine.keys.changed(key.key_id)
        assert secrets_of(engine, key) == (secret,)
        await until_so(lambda: secrets_of(engine, key) == ())
    await engine.keys.settle()
    assert secrets_of(engine, key) == (secret,)


async def test_administrators_alone_make_and_change_them(
    engine: Engine, administrator: Caller, caller: Caller
) -> None:
    key, _ = await create_key(engine, administrator, SHOP)
    of_another, _ = await create_key(engine, administrator, SHOP, OTHER_ACCOUNT)
    assert of_another.account_id == OTHER_ACCOUNT
    shown = NewApiKey("shown")
    attempts = [
        create_key(engine, caller, SHOP._replace(name="more")),
        create_key(engine, caller, shown._replace(is_administrator=True)),
        create_key(engine, caller, shown, OTHER_ACCOUNT),
        rotate_key(engine, caller, key.key_id, 0),
        change_key(engine, caller, key.key_id, is_disabled=True),
        revoke_key(engine, caller, key.key_id),
        list_keys(engine, caller, after_id=0, with_revoked=True, limit=9, account_id=OTHER_ACCOUNT),
    ]
    for attempt in attempts:
        with pytest.raises(AuthorizationError):
            await attempt
    with pytest.raises(KeyDoesNotExist):
        await find_key(engine, caller, of_another.key_id)
    assert await find_key(engine, administrator, of_another.key_id) == of_another
    listed = await list_keys(
        engine, administrator, after_id=0, with_revoked=False, limit=9, account_id=OTHER_ACCOUNT
    )
    assert listed == [of_another]


async def test_a_key_that_is_shown_has_no_second_secret(
    engine: Engine, administrator: Caller
) -> None:
    key, _ = await create_key(engine, administrator, NewApiKey("shown"))
    assert key.kind == API
    with pytest.raises(KeyUnfit, match="does not sign"):
        await rotate_key(engine, administrator, key.key_id, 0)
    with pytest.raises(KeyExists):
        await create_key(engine, administrator, SHOP._replace(name="shown"))
    await change_key(engine, administrator, key.key_id, is_disabled=True)
    assert (await find_key(engine, administrator, key.key_id)).disabled_at is not None


async def test_the_key_of_a_disabled_one_is_not_taken(
    engine: Engine, administrator: Caller
) -> None:
    key, shown = await create_key(engine, administrator, NewApiKey("shown", is_administrator=True))
    found = engine.keys.find(shown)
    assert found is not None
    assert found[0].is_administrator
    await change_key(engine, administrator, key.key_id, is_disabled=True)
    assert engine.keys.find(shown) is None
