"""Keys: what is one, who knows of it, and when it ends."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from queuegate.gateway.operations.access.api_keys import (
    NewApiKey,
    create_key,
    find_key,
    list_keys,
    revoke_key,
)
from queuegate.gateway.operations.access.caller import Caller
from queuegate.gateway.operations.access.key_cache import Keys
from queuegate.gateway.operations.runtime.engine import Engine
from queuegate.gateway.operations.runtime.limits import Limits
from queuegate.gateway.operations.runtime.wakeups import Wakeups
from queuegate.storage import stored_keys as stored
from queuegate.storage.database import Database
from queuegate.storage.model import RateLimit
from queuegate.storage.storage_errors import (
    InvalidParameterValue,
    KeyDoesNotExist,
    KeyExists,
    TooManyKeys,
    Unavailable,
)
from tests.operations.world import TestClock, World
from tests.waiting import until_so

SHOP = NewApiKey("shop")


@pytest.fixture
async def other(engine: Engine, database: Database) -> AsyncIterator[Keys]:
    """The keys as another process knows them; the two have met."""
    elsewhere = Wakeups(database)
    await engine.wakeups.start()
    found = Keys(database, engine.clock, elsewhere)
    await elsewhere.start()
    await found.load()
    await until_so(lambda: engine.wakeups._peers and elsewhere._peers)
    yield found
    await found.close()
    await elsewhere.stop()
    await engine.wakeups.stop()


async def test_a_key_names_its_account_and_its_limit(engine: Engine, caller: Caller) -> None:
    limit = RateLimit(500, 1)
    key, shown = await create_key(engine, caller, NewApiKey("shop", limit))
    assert shown.startswith(f"qg_{key.key_id}_")
    found = engine.keys.find(shown)
    assert found is not None
    assert found[0] == key
    assert found[0].account_id == caller.account_id
    assert (found[1].producer_id, found[1].name) == (str(key.key_id), "shop")
    assert found[1].limit == limit


async def test_nothing_but_the_key_is_the_key(engine: Engine, caller: Caller) -> None:
    key, shown = await create_key(engine, caller, SHOP)
    _, other = await create_key(engine, caller, NewApiKey("other"))
    secret = shown.split("_", 2)[2]
    wrong = [
        "",
        "qg_",
        f"qg_{key.key_id}_",
        f"qg_{key.key_id}_{secret[:-1]}",
        f"qg_{key.key_id}_{secret}x",
        f"qg_{key.key_id}_{secret[:-1]}é",
        f"qg_0{key.key_id}_{secret}",
        f"qg_{key.key_id + 999}_{secret}",
        f"qg_{key.key_id}_{other.split('_', 2)[2]}",
        f"qg_{'9' * 100_000}_{secret}",
        f"qg_٣_{secret}",
        f"QG_{key.key_id}_{secret}",
        f"{shown}\n",
        f"{shown}\0",
        shown.swapcase(),
        secret,
    ]
    assert [text for text in wrong if engine.keys.find(text) is not None] == []
    assert engine.keys.find(shown) is not None


async def test_the_database_has_no_secret(world: World) -> None:
    _, shown = await create_key(world.engine, world.caller, SHOP)
    async with world.engine.database.transaction() as tx:
        row = await tx.fetchval("SELECT keys::text FROM keys")
    assert shown.split("_", 2)[2] not in row


async def test_what_is_wrong_is_not_remembered(engine: Engine) -> None:
    before = len(engine.keys._live)
    for number in range(1000):
        assert engine.keys.find(f"qg_{number + 1}_{'x' * 43}") is None
    assert len(engine.keys._live) == before


async def test_other_processes_know_it_when_it_is_shown(world: World, other: Keys) -> None:
    for number in range(5):
        key, shown = await create_key(world.engine, world.caller, NewApiKey(f"shop-{number}"))
        assert other.find(shown) is not None
        await revoke_key(world.engine, world.caller, key.key_id)
        assert other.find(shown) is world.engine.keys.find(shown) is None


async def test_who_heard_nothing_for_a_while_reads_all(world: World) -> None:
    key, shown = await create_key(world.engine, world.caller, SHOP)
    deaf = Keys(world.engine.database, world.engine.clock, Wakeups(world.engine.database))
    await deaf.load()
    await revoke_key(world.engine, world.caller, key.key_id)
    _, later = await create_key(world.engine, world.caller, NewApiKey("later"))
    assert deaf.find(shown) is not None
    deaf.changed(None)
    await deaf.settle()
    assert deaf.find(shown) is None
    assert deaf.find(later) is not None


async def test_a_read_that_a_change_overtakes_does_not_bring_a_key_back(
    engine: Engine, caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, shown = await create_key(engine, caller, SHOP)
    read = stored.live
    reads = 0

    async def slow(*arguments: Any) -> Any:
        nonlocal reads
        reads += 1
        found = await read(*arguments)
        if reads == 1:
            async with engine.database.transaction() as tx:
                await stored.revoke(tx, None, None, key.key_id)
            engine.keys.changed(key.key_id)
        return found

    monkeypatch.setattr(stored, "live", slow)
    engine.keys.changed(None)
    await engine.keys.settle()
    assert engine.keys.find(shown) is None
    assert reads == 2


async def test_a_database_that_is_away_is_asked_again(
    engine: Engine, caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, shown = await create_key(engine, caller, SHOP)
    read = stored.live
    failures = [Unavailable("away"), Unavailable("away")]

    async def failing(*arguments: Any) -> Any:
        if failures:
            raise failures.pop()
        return await read(*arguments)

    monkeypatch.setattr(stored, "live", failing)
    engine.keys.changed(None)
    await engine.keys.settle()
    assert failures == []
    assert engine.keys.find(shown) is not None


async def test_a_key_expires(engine: Engine, caller: Caller, clock: TestClock) -> None:
    expires_at = clock.instant() + timedelta(hours=1)
    _, shown = await create_key(engine, caller, NewApiKey("shop", None, expires_at))
    clock.move_on(3599)
    assert engine.keys.find(shown) is not None
    clock.move_on(1)
    assert engine.keys.find(shown) is None
    with pytest.raises(InvalidParameterValue):
        await create_key(engine, caller, NewApiKey("late", None, expires_at))


@pytest.mark.parametrize("text", ["9999-12-31T23:59:59-23:59", "9999-12-31T23:59:59.999999+00:00"])
async def test_a_key_expires_when_that_can_be_stored(
    engine: Engine, caller: Caller, text: str
) -> None:
    with pytest.raises(InvalidParameterValue, match="before 9999"):
        await create_key(engine, caller, NewApiKey("shop", None, datetime.fromisoformat(text)))


@pytest.mark.parametrize("name", ["", "a b", "é", "x" * 81, "a/b", "a\n"])
async def test_a_name_is_short_and_plain(engine: Engine, caller: Caller, name: str) -> None:
    with pytest.raises(InvalidParameterValue):
        await create_key(engine, caller, NewApiKey(name))


async def test_a_name_is_free_again_when_its_key_is_revoked(engine: Engine, caller: Caller) -> None:
    key, _ = await create_key(engine, caller, SHOP)
    with pytest.raises(KeyExists):
        await create_key(engine, caller, SHOP)
    await create_key(engine, replace(caller, account_id="222222222222"), SHOP)
    await revoke_key(engine, caller, key.key_id)
    await create_key(engine, caller, SHOP)


async def test_accounts_have_their_own_keys(engine: Engine, caller: Caller) -> None:
    key, _ = await create_key(engine, caller, SHOP)
    stranger = replace(caller, account_id="222222222222")
    for operation in (find_key, revoke_key):
        with pytest.raises(KeyDoesNotExist):
            await operation(engine, stranger, key.key_id)
    assert await find_key(engine, caller, key.key_id) == key
    listed: Callable[..., Any] = list_keys
    every = {"after_id": 0, "with_revoked": False, "limit": 10}
    assert await listed(engine, caller, **every) == [key]
    assert await listed(engine, stranger, **every) == []
    revoked = await revoke_key(engine, caller, key.key_id)
    assert await revoke_key(engine, caller, key.key_id) == revoked
    assert await listed(engine, caller, **every) == []
    assert await listed(engine, caller, **every | {"with_revoked": True}) == [revoked]


async def test_there_may_only_be_so_many(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("queuegate.gateway.operations.access.api_keys.LIMITS", Limits(keys=2))
    for name in ("a", "b"):
        await create_key(world.engine, world.caller, NewApiKey(name))
    with pytest.raises(TooManyKeys):
        await create_key(world.engine, world.caller, NewApiKey("c"))


async def test_revoked_keys_are_forgotten_after_a_while(world: World, database: Database) -> None:
    key, _ = await create_key(world.engine, world.caller, SHOP)
    await revoke_key(world.engine, world.caller, key.key_id)
    for seconds, count in ((3599, 0), (2, 1)):
        world.clock.move_on(seconds)
        async with database.transaction() as tx:
            assert await stored.forget_revoked(tx, world.clock.now(), 3600, 10) == count
