"""Long answers: their bytes count for the account from the receive to the last part."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator

from queuegate.gateway.faces.aws.aws_bindings import BINDINGS
from queuegate.gateway.faces.aws.aws_face import AwsFace
from queuegate.gateway.faces.interface import Request
from queuegate.gateway.http.authentication import Authenticator
from tests.operations.world import World


async def test_bytes_of_an_answer_count_before_a_part_is_read(world: World) -> None:
    queue, caller = await world.make_queue(), world.caller
    for _ in range(10):
        await world.send(queue, "b" * 1_000_000)
    callers = Authenticator(
        mode="none", accounts={}, account_id=caller.account_id, region=caller.region
    )
    body = {"QueueUrl": f"http://localhost/{caller.account_id}/{queue.name}"}
    headers = {"x-amz-target": "AmazonSQS.ReceiveMessage"}
    members = json.dumps(body | {"MaxNumberOfMessages": 10}).encode()
    asked = Request("POST", "/", b"", headers, members, "", "", "id", raw_path="/")
    answer = await AwsFace(world.engine, callers, BINDINGS).answer(asked)
    traffic = world.engine.series.traffic
    assert isinstance(answer.body, AsyncGenerator)
    assert traffic.held_bytes > 10_000_000
    # As for a client that has left meanwhile.
    await answer.body.aclose()
    assert traffic.held_bytes == 0
