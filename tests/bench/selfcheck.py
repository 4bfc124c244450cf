"""A check of the load client's counts on each server before the measurement."""

import json
from typing import Any

from tests.bench.client import HANDLE, Load, Script
from tests.bench.servers import CannotMeasure
from tests.bench.stage import Stage, say
from tests.bench.topics import (
    RAW,
    attribute,
    create_topic,
    delete_topic,
    filter_policy,
    subscribe_queues,
)

MESSAGES = 200
MOTO_MESSAGES = 40
_CONNECTIONS = 8


async def check(stage: Stage) -> None:
    """Send distinct bodies, receive and delete them; every one must be seen exactly once.

    Raises CannotMeasure when they are not, for then no figure of this run means anything.
    """
    count = MOTO_MESSAGES if stage.is_moto else MESSAGES
    pool = await stage.pool(_CONNECTIONS)
    try:
        queue_url = await stage.create_queue(pool)
        members = {"QueueUrl": queue_url, "MessageBody": 'quoted "{n}"'}
        render = stage.renderer.numbered("SendMessage", members, fields=("{n}",))
        sent = iter(range(count))
        sent_ids: list[str] = []

        def send(_: Load) -> Script:
            for number in sent:
                sent_ids.append(_body((yield render(number)))["MessageId"])

        await pool.run(send, 60)
        seen = await _receive_all(stage, queue_url, count)
        await stage.delete_queue(pool, queue_url)
    finally:
        pool.close()
    wanted = {f'quoted "{number:012d}"' for number in range(count)}
    if len(set(sent_ids)) != count or set(seen.values()) != wanted or set(seen) != set(sent_ids):
        raise CannotMeasure(
            f"{stage.server.name}: sent {len(set(sent_ids))} of {count} distinct messages, "
            f"received {len(seen)}, {len(set(seen.values()) & wanted)} of them as sent"
        )
    say(f"  {stage.server.name}: {count} distinct messages sent, received and deleted")


async def check_topics(stage: Stage) -> None:
    """Publish distinct texts to a topic; each must be in both queues once, in the filtered never.

    Raises CannotMeasure when that is not so.
    """
    count = MOTO_MESSAGES if stage.is_moto else MESSAGES
    pool = await stage.pool(_CONNECTIONS)
    try:
        topic_arn = await create_topic(stage, pool)
        queue_urls = [await stage.create_queue(pool) for _ in range(3)]
        kinds: tuple[dict[str, str], ...] = (RAW, {}, filter_policy("other"))
        for queue_url, kind in zip(queue_urls, kinds, strict=True):
            await subscribe_queues(stage, pool, topic_arn, [queue_url], attributes=kind)
        members = {"TopicArn": topic_arn, "Message": 'quoted "{n}"', **attribute("wanted")}
        render = stage.renderer.numbered_form("Publish", members, fields=("{n}",))
        await stage.drain(render(number) for number in range(count))
        raw, wrapped, filtered = [
            list((await _receive_all(stage, queue_url, wanted)).values())
            for queue_url, wanted in zip(queue_urls, (count, count, 0), strict=True)
        ]
        await delete_topic(stage, pool, topic_arn)
        for queue_url in queue_urls:
            await stage.delete_queue(pool, queue_url)
    finally:
        pool.close()
    wanted_texts = sorted(f'quoted "{number:012d}"' for number in range(count))
    unwrapped = sorted(json.loads(text)["Message"] for text in wrapped)
    if sorted(raw) != wanted_texts or unwrapped != wanted_texts or filtered:
        raise CannotMeasure(
            f"{stage.server.name}: of {count} messages published {len(raw)} came raw and "
            f"{len(wrapped)} in envelopes, and {len(filtered)} past a filter"
        )
    say(f"  {stage.server.name}: {count} distinct messages published to two queues of three")


async def _receive_all(stage: Stage, queue_url: str, count: int) -> dict[str, str]:
    """Receive and delete until so many messages were seen; return bodies by message id."""
    members = {"QueueUrl": queue_url, "MaxNumberOfMessages": 10, "WaitTimeSeconds": 0}
    receive = stage.renderer.request("ReceiveMessage", members)
    delete = stage.renderer.deletion(queue_url)
    seen: dict[str, str] = {}
    twice: list[str] = []

    def script(load: Load) -> Script:
        while len(seen) < count and load.empty < 100:
            answer = yield receive
            handles = HANDLE.findall(answer)
            load.empty += not handles
            messages = _body(answer).get("Messages", [])
            for message in messages:
                if message["MessageId"] in seen:
                    twice.append(message["MessageId"])
                seen[message["MessageId"]] = message["Body"]
            for handle in handles:
                yield delete(handle)

    pool = await stage.pool(1)
    try:
        await pool.run(script, 60)
        left = _body(await pool.exchange(receive))
    finally:
        pool.close()
    if twice:
        raise CannotMeasure(f"{stage.server.name} gave {len(twice)} messages twice")
    if left.get("Messages"):
        raise CannotMeasure(f"{stage.server.name} still holds messages after all were deleted")
    return seen


def _body(answer: bytes) -> dict[str, Any]:
    decoded: dict[str, Any] = json.loads(answer.partition(b"\r\n\r\n")[2] or b"{}")
    return decoded
