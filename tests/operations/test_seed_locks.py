"""Seeds and locks of other sessions."""

from __future__ import annotations

import json

import pytest

from queuegate.gateway.configuration.settings import Settings
from queuegate.gateway.faces.interface import Request
from queuegate.gateway.http.authentication import Authenticator
from queuegate.gateway.pages import account_pages
from queuegate.gateway.pages.admin_endpoints import AdminPages
from queuegate.storage import database
from tests.operations.world import World


async def test_a_seed_says_that_another_session_holds_a_lock(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, caller = world.engine, world.caller
    monkeypatch.setattr(database, "_PATIENCE", ("100ms", "100ms"))
    queue = await world.make_queue()
    callers = Authenticator(
        mode="none", accounts={}, account_id=caller.account_id, region=caller.region
    )
    settings = Settings.from_env({}, {"ephemeral": True})
    pages = AdminPages(engine, callers, settings, account_pages.of_seeds)
    where = {"account_id": caller.account_id, "region": caller.region, "kind": "queue"}
    resource = {**where, "name": queue.name, "values": {"DelaySeconds": "3"}}
    body = json.dumps({"resources": [resource]}).encode()

    async def applied() -> tuple[int, dict[str, object]]:
        path = "/_admin/seed"
        answer = await pages.answer(
            Request("POST", path, b"", {}, body, "", "", "id", raw_path=path)
        )
        assert answer is not None
        assert isinstance(answer.body, bytes)
        return answer.status, json.loads(answer.body)

    async with engine.database.transaction() as tx:
        await tx.execute("SELECT 1 FROM queues WHERE queue_id = $1 FOR UPDATE", queue.queue_id)
        status, found = await applied()
        assert status == 409
        assert "pg_stat_activity shows those 'idle in transaction'" in str(found["error"])
    async with engine.database.one_transaction():
        assert (await applied())[0] == 409
    assert (await applied())[1]["changes"] == [f"changed queue {queue.name}"]
