"""Seeds and locks of other sessions."""

from __future__ import annotations

import msgspec
import pytest

from queuegate.gateway.configuration.settings import Settings
from queuegate.gateway.faces.interface import Request
from queuegate.gateway.http.authentication import Authenticator
from queuegate.gateway.pages import account_pages
from queuegate.gateway.pages.admin_endpoints import AdminPages
from queuegate.gateway.seeding.resource_kinds import SeedResource
from queuegate.gateway.seeding.seeds import Seed
from queuegate.storage import database
from tests.operations.world import World


async def test_a_seed_says_that_another_session_holds_a_lock(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, where = world.engine, (world.caller.account_id, world.caller.region)
    monkeypatch.setattr(database, "_PATIENCE", ("100ms", "100ms"))
    queue = await world.make_queue()
    seed = Seed([SeedResource("queue", *where, queue.name, {"DelaySeconds": "3"})])
    callers = Authenticator(mode="none", accounts={}, account_id=where[0], region=where[1])
    settings = Settings.from_env({}, {"ephemeral": True})
    pages = AdminPages(engine, callers, settings, account_pages.of_seeds)

    async def applied() -> tuple[int, str]:
        path, body = "/_admin/seed", msgspec.json.encode(seed)
        asked = Request("POST", path, b"", {}, body, "", "", "id", raw_path=path)
        answer = await pages.answer(asked)
        assert answer is not None
        return answer.status, str(answer.body)

    async with engine.database.transaction() as tx:
        await tx.execute("SELECT 1 FROM queues WHERE queue_id = $1 FOR UPDATE", queue.queue_id)
        status, text = await applied()
    assert (status, "idle in transaction" in text) == (409, True)
    async with engine.database.one_transaction():
        assert (await applied())[0] == 409
    assert f"changed queue {queue.name}" in (await applied())[1]
