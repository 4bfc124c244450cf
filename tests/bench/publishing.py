"""Publishes: to queues by number and kind of copies, past filters, in batches, on FIFO topics."""

import itertools
import json
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import cast

from tests.bench.client import Load, Pool, Script
from tests.bench.hot import Case, Prepared, Run, cycles, receive_request, repeated, split
from tests.bench.rendering import SNS_JSON, message_body
from tests.bench.stage import Bench, Figures, Scenario, Stage, plain, say
from tests.bench.topics import (
    RAW,
    attribute,
    create_topic,
    delete_topic,
    filter_policy,
    subscribe_queues,
)

FILTERS = 50
BODY_BYTES = 1024
COMPARED = 8_000
_GROUPS = 64
_AT_64 = ((64, 1024),)
_AT_16_AND_64 = ((16, 1024), (64, 1024))
_PARTS = ("gateway_us", "database_us", "total_us")
_UNSIGNED = (("QUEUEGATE_SIGN_QUEUE_ENVELOPES", "false"),)

MakeRequest = Callable[[Stage, str, int], bytes]


def publish_request(stage: Stage, topic_arn: str, body_bytes: int) -> bytes:
    """Return a publish over Query of so many bytes that need no percent sign."""
    members = {"TopicArn": topic_arn, "Message": message_body(body_bytes)}
    return stage.renderer.form("Publish", members)


def publish_batch_request(stage: Stage, topic_arn: str, body_bytes: int) -> bytes:
    """Return a PublishBatch over Query of ten messages of so many bytes each."""
    members = {"TopicArn": topic_arn}
    for number in range(1, 11):
        entry = f"PublishBatchRequestEntries.member.{number}"
        members |= {f"{entry}.Id": str(number), f"{entry}.Message": message_body(body_bytes)}
    return stage.renderer.form("PublishBatch", members)


def _json_text_request(stage: Stage, topic_arn: str, body_bytes: int) -> bytes:
    """An order in JSON, of so many bytes: three in ten of them need a percent sign."""
    order: dict[str, object] = {"orderId": "2f0e1c7a-55d1", "note": "", "lines": []}
    lines = cast(list[object], order["lines"])
    while len(json.dumps(order)) < body_bytes - 80:
        lines.append({"sku": f"K7-{len(lines):05d}", "quantity": 3, "price": 12.5})
    order["note"] = message_body(body_bytes - len(json.dumps(order)))
    members = {"TopicArn": topic_arn, "Message": json.dumps(order)}
    return stage.renderer.form("Publish", members)


def _over_json(stage: Stage, topic_arn: str, body_bytes: int) -> bytes:
    members = {"TopicArn": topic_arn, "Message": message_body(body_bytes)}
    return stage.renderer.request("Publish", members, SNS_JSON)


def _with_attribute(stage: Stage, topic_arn: str, body_bytes: int) -> bytes:
    members = {"TopicArn": topic_arn, "Message": message_body(body_bytes), **attribute("wanted")}
    return stage.renderer.form("Publish", members)


def _publish(
    copies: int,
    attributes: Mapping[str, str],
    request: MakeRequest = publish_request,
) -> Callable[[Run, Pool], Awaitable[Prepared]]:
    """Publishes to a topic with so many queues, all subscribed with these attributes."""

    async def prepare(run: Run, pool: Pool) -> Prepared:
        topic_arn, queue_urls = await _topic(run.stage, pool, copies, attributes)
        return _published(run, topic_arn, queue_urls, request)

    return prepare


async def _filtered(run: Run, pool: Pool) -> Prepared:
    stage = run.stage
    topic_arn, queue_urls = await _topic(stage, pool, 1, filter_policy("wanted", "too"))
    for number in range(FILTERS):
        queue_url = await stage.create_queue(pool)
        queue_urls.append(queue_url)
        policy = filter_policy("other", f"kind-{number}")
        await subscribe_queues(stage, pool, topic_arn, [queue_url], attributes=policy)
    return _published(run, topic_arn, queue_urls, _with_attribute)


async def _fifo(run: Run, pool: Pool) -> Prepared:
    stage = run.stage
    topic_arn = await create_topic(stage, pool, fifo=True)
    queue_url = await stage.create_queue(pool, fifo=True)
    await subscribe_queues(stage, pool, topic_arn, [queue_url], attributes=RAW)
    members = {
        "TopicArn": topic_arn,
        "Message": message_body(run.body_bytes),
        "MessageDeduplicationId": "d{n}",
        "MessageGroupId": "g{g}",
    }
    render = stage.renderer.numbered_form("Publish", members, fields=("{n}", "{g}"))
    requests = (render(number, number % _GROUPS) for number in itertools.count())
    warm, measured = split(run, requests)
    return Prepared(lambda _: plain(warm), lambda _: plain(measured), (queue_url,), topic_arn)


def _cycle(attributes: Mapping[str, str]) -> Callable[[Run, Pool], Awaitable[Prepared]]:
    """Publish to one queue, receive the copy, delete it."""

    async def prepare(run: Run, pool: Pool) -> Prepared:
        stage = run.stage
        topic_arn, (queue_url,) = await _topic(stage, pool, 1, attributes)
        publish = publish_request(stage, topic_arn, run.body_bytes)
        await stage.drain([publish] * (2 * run.connections))
        receive = receive_request(stage, queue_url, 1)
        steps = itertools.repeat((publish, receive, stage.renderer.deletion(queue_url)))
        warm, measured = split(run, steps)
        return Prepared(
            lambda load: cycles(warm, load),
            lambda load: cycles(measured, load),
            (queue_url,),
            topic_arn,
        )

    return prepare


CASES = (
    Case("publish-0", "Publish to no queue", 1, _publish(0, RAW), sizes=_AT_64),
    Case("publish-1", "Publish to one queue, raw", 1, _publish(1, RAW), sizes=_AT_16_AND_64),
    Case("publish-10", "Publish to 10 queues, raw", 6, _publish(10, RAW), sizes=_AT_64),
    Case("publish-100", "Publish to 100 queues, raw", 40, _publish(100, RAW), False, _AT_64),
    Case("envelope-1", "Publish to one queue, envelope", 1, _publish(1, {}), sizes=_AT_64),
    Case("envelope-10", "Publish to 10 queues, envelopes", 6, _publish(10, {}), sizes=_AT_64),
    Case("envelope-100", "Publish to 100 queues", 40, _publish(100, {}), False, _AT_64),
    Case("publish-json", "Publish over JSON", 1, _publish(1, RAW, _over_json), False, _AT_64),
    Case(
        "publish-order",
        "Publish of a text that is JSON: many percent signs in the form",
        1,
        _publish(1, RAW, _json_text_request),
        False,
        _AT_64,
    ),
    Case(
        "publish-attr",
        "Publish with an attribute to one queue, no filter policy",
        1,
        _publish(1, RAW, _with_attribute),
        False,
        _AT_64,
    ),
    Case(
        "publish-filter",
        f"the same with a filter policy, beside {FILTERS} whose policies refuse it",
        2,
        _filtered,
        False,
        _AT_64,
    ),
    Case(
        "publish-batch",
        "PublishBatch of 10 to one queue, raw",
        4,
        _publish(1, RAW, publish_batch_request),
        sizes=_AT_64,
    ),
    Case("publish-fifo", "FIFO topic, FIFO queue, 64 groups", 2, _fifo, False, _AT_64),
    Case("raw-cycle", "publish, receive, delete, raw", 3, _cycle(RAW), False, _AT_64),
    Case("signed-cycle", "the same, signed envelope", 6, _cycle({}), False, _AT_64),
    Case(
        "unsigned-cycle",
        "the same, queue envelopes not signed",
        3,
        _cycle({}),
        False,
        _AT_64,
        _UNSIGNED,
    ),
)


def scenarios() -> list[Scenario]:
    """Return the scenarios of this file that are not cases."""
    about = "publish to one queue against a send, in turn"
    return [Scenario("publish-to-send", about, _against_send)]


async def _against_send(bench: Bench) -> None:
    for connections in (16, 64):
        if connections in bench.options.connections:
            pool = await bench.queuegate.pool(connections)
            try:
                await _compare(bench.queuegate, pool, connections)
            finally:
                pool.close()


async def _compare(stage: Stage, pool: Pool, connections: int) -> None:
    """Note the ratios of CPU, round by round: what else the machine does falls on both."""
    topic_arn, (copy_url,) = await _topic(stage, pool, 1, RAW)
    send_url = await stage.create_queue(pool)
    sends = itertools.cycle([stage.send_request(send_url, BODY_BYTES) for _ in range(64)])
    publishes = itertools.cycle([publish_request(stage, topic_arn, BODY_BYTES) for _ in range(64)])
    key, count = f"publish-to-send/{connections}", int(COMPARED * stage.options.scale)
    for requests in (sends, publishes):
        await pool.run(_shared(itertools.islice(requests, count // 4)), stage.options.run_seconds)
    for _ in range(max(5, stage.options.rounds)):
        base = await stage.measure(pool, _shared(itertools.islice(sends, count)))
        values = await stage.measure(pool, _shared(itertools.islice(publishes, count)))
        stage.figures.note(
            key,
            total_us=values["total_us"],
            base_total_us=base["total_us"],
            ratio=values["total_us"] / base["total_us"],
        )
    await delete_topic(stage, pool, topic_arn)
    for queue_url in (copy_url, send_url):
        await stage.delete_queue(pool, queue_url)
    summary = stage.figures.summary()[key]
    say(
        f"  {key}: {summary['total_us']:.1f} against {summary['base_total_us']:.1f} us, "
        f"ratio {summary['ratio']:.2f}"
    )


def _shared(supply: Iterator[bytes]) -> Callable[[Load], Script]:
    return lambda _: plain(supply)


def note_derived(figures: Figures) -> None:
    """Note what follows from the rounds: the cost of a further copy, a policy, a message."""
    for server in ("", "moto "):
        for kind, copies in itertools.product(("publish", "envelope"), (10, 100)):
            _note_per(
                figures,
                f"{server}{kind}-copy/{copies}",
                (f"{server}{kind}-{copies}", copies - 1),
                f"{server}{kind}-1",
            )
        _note_per(figures, f"{server}batch-message", (f"{server}publish-batch", 10), None)
    _note_per(figures, "filter-policy", ("publish-filter", FILTERS + 1), "publish-attr")


def _note_per(figures: Figures, key: str, counted: tuple[str, int], base: str | None) -> None:
    """Note the difference of two cases, of each round, divided by a number."""
    case, count = counted
    measured = list(_rounds(figures, f"{case}/64/1024"))
    nothing: dict[str, float] = dict.fromkeys(_PARTS, 0.0)
    bases = [nothing] * len(measured) if base is None else _rounds(figures, f"{base}/64/1024")
    for values, less in zip(measured, bases, strict=False):
        figures.note(key, **{name: (values[name] - less[name]) / count for name in _PARTS})


def _rounds(figures: Figures, key: str) -> Iterator[dict[str, float]]:
    """The rounds of a figure, none when it was not measured."""
    fields = figures.rounds.get(key, {})
    for values in zip(*(fields.get(name, ()) for name in _PARTS), strict=False):
        yield dict(zip(_PARTS, values, strict=True))


def _published(run: Run, topic_arn: str, queue_urls: list[str], request: MakeRequest) -> Prepared:
    requests = [request(run.stage, topic_arn, run.body_bytes) for _ in range(64)]
    prepared = repeated(run, requests, *queue_urls)
    return Prepared(prepared.warm, prepared.measured, prepared.queue_urls, topic_arn)


async def _topic(
    stage: Stage, pool: Pool, copies: int, attributes: Mapping[str, str]
) -> tuple[str, list[str]]:
    topic_arn = await create_topic(stage, pool)
    queue_urls = [await stage.create_queue(pool) for _ in range(copies)]
    await subscribe_queues(stage, pool, topic_arn, queue_urls, attributes=attributes)
    return topic_arn, queue_urls
