"""Topics and subscriptions of a run, over Query as boto3 has it, on the gateway and on moto."""

import itertools
import json
import re
from collections.abc import Mapping, Sequence
from time import perf_counter

from tests.bench.client import Pool
from tests.bench.servers import CannotMeasure
from tests.bench.stage import Stage

_TOPIC_ARN = re.compile(rb"<TopicArn>([^<]+)</TopicArn>")
_NAMES = itertools.count(1)
RAW = {"RawMessageDelivery": "true"}


async def create_topic(stage: Stage, pool: Pool, *, fifo: bool = False) -> str:
    """Create a topic under a new name and return its ARN; a FIFO topic with its fastest scope."""
    name = f"bench-{int(perf_counter() * 1000):x}-{next(_NAMES)}"
    attributes: dict[str, str] = {}
    if fifo:
        name += ".fifo"
        attributes = {"FifoTopic": "true", "FifoThroughputScope": "MessageGroup"}
    form = stage.renderer.form("CreateTopic", {"Name": name, **_entries(attributes)})
    found = _TOPIC_ARN.search(await pool.exchange(form))
    if found is None:
        raise CannotMeasure(f"{stage.server.name} gave a topic no ARN")
    return found.group(1).decode()


async def subscribe_queues(
    stage: Stage,
    pool: Pool,
    topic_arn: str,
    queue_urls: Sequence[str],
    *,
    attributes: Mapping[str, str],
) -> None:
    """Subscribe queues, each with these attributes."""
    for queue_url in queue_urls:
        await subscribe(
            stage, pool, topic_arn, ("sqs", queue_arn(queue_url)), attributes=attributes
        )


async def subscribe(
    stage: Stage,
    pool: Pool,
    topic_arn: str,
    endpoint: tuple[str, str],
    *,
    attributes: Mapping[str, str],
) -> None:
    """Subscribe an endpoint, given with its protocol."""
    members = {"TopicArn": topic_arn, "Protocol": endpoint[0], "Endpoint": endpoint[1]}
    await pool.exchange(stage.renderer.form("Subscribe", {**members, **_entries(attributes)}))


async def delete_topic(stage: Stage, pool: Pool, topic_arn: str) -> None:
    """Delete a topic with its subscriptions."""
    await pool.exchange(stage.renderer.form("DeleteTopic", {"TopicArn": topic_arn}))


def queue_arn(queue_url: str) -> str:
    """Return the ARN of a queue in the region of the run."""
    account_id, name = queue_url.rsplit("/", 2)[1:]
    return f"arn:aws:sqs:us-east-1:{account_id}:{name}"


def filter_policy(*values: str) -> dict[str, str]:
    """Return raw delivery of messages whose attribute `kind` has one of these values."""
    return {**RAW, "FilterPolicy": json.dumps({"kind": list(values)})}


def attribute(value: str) -> dict[str, str]:
    """Return the parameters of a publish with the attribute `kind`."""
    name = "MessageAttributes.entry.1"
    return {
        f"{name}.Name": "kind",
        f"{name}.Value.DataType": "String",
        f"{name}.Value.StringValue": value,
    }


def _entries(attributes: Mapping[str, str]) -> dict[str, str]:
    return {
        f"Attributes.entry.{number}.{part}": text
        for number, pair in enumerate(attributes.items(), 1)
        for part, text in zip(("key", "value"), pair, strict=True)
    }
