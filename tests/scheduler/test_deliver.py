"""Deliveries: what web hooks get, what counts as delivered, and what becomes of failures."""

from __future__ import annotations

import json
import subprocess
import sys
from asyncio import StreamReader, StreamWriter

import pytest

import queuegate.storage.model
from queuegate.protocol.arns import queue_arn
from queuegate.storage.storage_errors import Unavailable
from tests.scheduler.conftest import ACCOUNT, NOON, REGION, Store
from tests.scheduler.endpoints import (
    Behaviour,
    Endpoint,
    answer,
    close_at_once,
    close_mid_answer,
    close_mid_chunk,
    endless_body,
    endless_headers,
    hang,
    in_turn,
    slow_body,
)
from tests.scheduler.webhook_store import TOPIC_ARN, WebHookStore

UNSIGNED = '{\n  "Type" : "Notification",\n  "Signature" : "",\n  "Message" : "ä"\n}'
SIGNED = UNSIGNED.replace('""', '"ok"')
COLOUR = '{"colour":{"DataType":"String","StringValue":"red"}}'


async def deliver_once(hooks: WebHookStore, **options: object) -> int:
    worker = hooks.worker(**options)
    count = await worker.run_once()
    await worker.stop()
    return count


async def test_raw_notification_goes_out_as_sns_sends_it(
    hooks: WebHookStore, endpoint: Endpoint
) -> None:
    subscription_id = await hooks.subscribe(endpoint.url)
    await hooks.add(subscription_id, endpoint.url + "?a=b%20c", "hällo")
    message_id = (await hooks.row())["message_id"]
    assert await deliver_once(hooks) == 1

    [request] = endpoint.requests
    assert (request.method, request.path) == ("POST", "/hook?a=b%20c")
    assert request.body == "hällo".encode()
    assert request.headers == {
        "host": f"127.0.0.1:{endpoint.port}",
        "x-amz-sns-message-type": "Notification",
        "x-amz-sns-message-id": str(message_id),
        "x-amz-sns-topic-arn": TOPIC_ARN,
        "x-amz-sns-subscription-arn": f"{TOPIC_ARN}:{subscription_id}",
        "x-amz-sns-rawdelivery": "true",
        "content-type": "text/plain; charset=UTF-8",
        "user-agent": "Amazon Simple Notification Service Agent",
        "accept-encoding": "gzip,deflate",
        "content-length": "6",
    }
    assert await hooks.rows() == []
    assert (hooks.tally.succeeded, hooks.tally.failed) == (1, 0)


def test_the_client_library_is_loaded_at_the_first_delivery() -> None:
    """A gateway that delivers nothing starts no slower and takes no more memory."""
    text = (
        "import sys, queuegate.gateway.process.gateway_process; "
        "import queuegate.gateway.cli; "
        "sys.exit('aiohttp' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", text], check=False).returncode == 0


async def test_large_bodies_arrive_whole(hooks: WebHookStore, endpoint: Endpoint) -> None:
    body = "ä0123456789" * 200_000
    await hooks.add(await hooks.subscribe(endpoint.url), endpoint.url, body)
    await deliver_once(hooks)

    [request] = endpoint.requests
    assert request.body.decode() == body
    assert request.headers["content-length"] == str(len(body.encode()))
    assert request.headers["content-type"] == "text/plain; charset=UTF-8"
    assert "content-disposition" not in request.headers


async def test_envelope_is_signed_on_its_way(hooks: WebHookStore, endpoint: Endpoint) -> None:
    subscription_id = await hooks.subscribe(endpoint.url)
    await hooks.add(subscription_id, endpoint.url, UNSIGNED, is_raw=False)
    await deliver_once(hooks)

    [request] = endpoint.requests
    assert request.body.decode() == SIGNED
    assert "x-amz-sns-rawdelivery" not in request.headers


@pytest.mark.parametrize(
    ("kind", "has_arn"), [("SubscriptionConfirmation", False), ("UnsubscribeConfirmation", True)]
)
async def test_confirmations_are_plain_text_and_need_no_subscription(
    hooks: WebHookStore, endpoint: Endpoint, kind: str, has_arn: bool
) -> None:
    policy = json.dumps({"requestPolicy": {"headerContentType": "application/json"}})
    subscription_id = await hooks.subscribe(endpoint.url, DeliveryPolicy=policy)
    async with hooks.database.transaction() as tx:
        await tx.execute("DELETE FROM subscriptions")
    await hooks.add(subscription_id, endpoint.url, UNSIGNED, kind=kind, is_raw=False)
    await deliver_once(hooks)

    [request] = endpoint.requests
    assert request.headers["x-amz-sns-message-type"] == kind
    assert request.headers["content-type"] == "text/plain; charset=UTF-8"
    assert ("x-amz-sns-subscription-arn" in request.headers) is has_arn
    assert await hooks.rows() == []


async def test_notification_without_its_subscription_is_dropped(
    hooks: WebHookStore, endpoint: Endpoint
) -> None:
    subscription_id = await hooks.subscribe(endpoint.url)
    await hooks.add(subscription_id, endpoint.url, "a", "b")
    async with hooks.database.transaction() as tx:
        await tx.execute("DELETE FROM topics")
    await deliver_once(hooks)

    assert endpoint.requests == []
    assert await hooks.rows() == []
    assert (hooks.tally.succeeded, hooks.tally.failed) == (0, 0)


async def test_request_policy_names_the_content_type(
    hooks: WebHookStore, endpoint: Endpoint
) -> None:
    policy = json.dumps({"requestPolicy": {"headerContentType": "application/json"}})
    subscription_id = await hooks.subscribe(endpoint.url, DeliveryPolicy=policy)
    await hooks.add(subscription_id, endpoint.url, "{}")
    await deliver_once(hooks)

    assert endpoint.requests[0].headers["content-type"] == "application/json"


@pytest.mark.parametrize("status", [200, 201, 202, 204, 299])
async def test_any_2xx_is_success(hooks: WebHookStore, endpoint: Endpoint, status: int) -> None:
    endpoint.behaviour = answer(status)
    await hooks.add(await hooks.subscribe(endpoint.url), endpoint.url, "a")
    await deliver_once(hooks)
    assert await hooks.rows() == []


@pytest.mark.parametrize("status", [500, 503, 599, 429])
async def test_server_errors_are_tried_again(
    hooks: WebHookStore, endpoint: Endpoint, status: int
) -> None:
    endpoint.behaviour = answer(status)
    await hooks.add(await hooks.subscribe(endpoint.url), endpoint.url, "a")
    await deliver_once(hooks)

    row = await hooks.row()
    assert (row["state"], row["is_leased"], row["attempt_count"]) == ("pending", False, 1)
    assert (row["last_status"], row["last_error"]) == (status, f"HTTP {status}")
    assert 20 <= (row["due_at"] - NOON).total_seconds() <= 22
    assert row["attempted_at"] == NOON
    assert await deliver_once(hooks) == 0


@pytest.mark.parametrize("status", [400, 403, 404, 410, 301, 302, 307, 304])
async def test_client_errors_and_redirects_are_not_tried_again(
    hooks: WebHookStore, endpoint: Endpoint, status: int
) -> None:
    async with Endpoint(answer(200)).listening() as elsewhere:
        endpoint.behaviour = answer(status, headers=f"Location: {elsewhere.url}\r\n")
        await hooks.add(await hooks.subscribe(endpoint.url), endpoint.url, "a")
        await deliver_once(hooks)
        assert elsewhere.requests == []

    row = await hooks.row()
    assert (row["state"], row["attempt_count"], row["last_status"]) == ("exhausted", 1, status)
    assert row["last_error"].startswith(f"HTTP {status}: ")
    hooks.later(86_400)
    assert await deliver_once(hooks) == 0
    assert hooks.tally.exhausted_count == 1


@pytest.mark.parametrize(
    ("behaviour", "error"),
    [
        (close_at_once, "the connection was closed before an answer"),
        (close_mid_answer, "the connection was closed in the middle of the answer"),
        (close_mid_chunk, "the connection was closed in the middle of the answer"),
        (endless_headers, ""),
        (hang, "no answer within 0.3 s"),
        (slow_body, "no answer within 0.3 s"),
    ],
)
async def test_no_whole_answer_is_tried_again(
    hooks: WebHookStore, endpoint: Endpoint, behaviour: Behaviour, error: str
) -> None:
    endpoint.behaviour = behaviour
    await hooks.add(await hooks.subscribe(endpoint.url), endpoint.url, "a")
    # Short only for those that it is to end.
    await deliver_once(hooks, timeout_seconds=0.3 if error.startswith("no answer") else 5.0)

    row = await hooks.row()
    assert (row["state"], row["is_leased"], row["last_status"]) == ("pending", False, None)
    assert row["last_error"] == error or (not error and row["last_error"])


async def test_endless_answer_counts_by_its_status_and_is_cut_off(
    hooks: WebHookStore, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[int] = []

    async def counted(reader: StreamReader, writer: StreamWriter) -> None:
        drain = writer.drain

        async def noted() -> None:
            await drain()
            taken.append(4096)

        monkeypatch.setattr(writer, "drain", noted)
        await endless_body(reader, writer)

    endpoint.behaviour = counted
    await hooks.add(await hooks.subscribe(endpoint.url), endpoint.url, "a")
    await deliver_once(hooks)
    assert await hooks.rows() == []
    # 64 KiB are read, and the sockets between hold some megabytes.
    assert 0 < sum(taken) < 32 << 20


async def test_refused_connection_is_tried_again(hooks: WebHookStore) -> None:
    endpoint = Endpoint(answer(200))
    async with endpoint.listening():
        pass
    await hooks.add(await hooks.subscribe(endpoint.url), endpoint.url, "a")
    await deliver_once(hooks)

    row = await hooks.row()
    assert (row["state"], row["last_status"]) == ("pending", None)
    assert "refused" in row["last_error"].lower()


@pytest.mark.parametrize(
    ("url", "error"),
    [
        ("http://no-such-host.invalid/", "the host name has no address"),
        # aiohttp takes such numbers for an address until 3.14.
        ("http://127.1:1/", ("not a URL", "no connection")),
        ("http://[::1/", "not a URL"),
        ("http://ex ample:x/", "not a URL"),
        ("http:///path", "not a URL"),
    ],
)
async def test_unusable_urls_say_why(
    hooks: WebHookStore, url: str, error: str | tuple[str, ...]
) -> None:
    await hooks.add(await hooks.subscribe(url), url, "a")
    await deliver_once(hooks)
    assert (await hooks.row())["last_error"].startswith(error)


async def test_default_policy_is_four_attempts_twenty_seconds_apart(
    hooks: WebHookStore, endpoint: Endpoint
) -> None:
    endpoint.behaviour = answer(500)
    await hooks.add(await hooks.subscribe(endpoint.url), endpoint.url, "a")
    for attempt in range(1, 5):
        assert await deliver_once(hooks) == 1
        assert (await hooks.row())["attempt_count"] == attempt
        hooks.later(19.9)
        assert await deliver_once(hooks) == 0
        hooks.later(2.2)

    row = await hooks.row()
    assert (row["state"], row["is_leased"], row["last_error"]) == ("exhausted", False, "HTTP 500")
    assert await deliver_once(hooks) == 0
    assert len(endpoint.requests) == 4
    assert (hooks.tally.failed, hooks.tally.exhausted_count) == (4, 1)


async def test_delivery_policies_of_topic_and_subscription_decide(
    hooks: WebHookStore, endpoint: Endpoint
) -> None:
    endpoint.behaviour = answer(500)
    retry = {"minDelayTarget": 5, "maxDelayTarget": 5, "numRetries": 1}
    own = json.dumps({"healthyRetryPolicy": retry})
    await hooks.add(await hooks.subscribe(endpoint.url, DeliveryPolicy=own), endpoint.url, "a")
    await deliver_once(hooks)
    assert 5 <= ((await hooks.row())["due_at"] - NOON).total_seconds() <= 5.5

    topic = {"defaultHealthyRetryPolicy": {"numRetries": 0}, "disableSubscriptionOverrides": True}
    await hooks.make_topic(DeliveryPolicy=json.dumps({"http": topic}))
    hooks.later(6)
    await deliver_once(hooks)
    assert (await hooks.row())["state"] == "exhausted"


async def test_success_after_failures_removes_the_delivery(
    hooks: WebHookStore, endpoint: Endpoint
) -> None:
    endpoint.behaviour = in_turn(answer(500), answer(429), answer(200))
    await hooks.add(await hooks.subscribe(endpoint.url), endpoint.url, "a")
    for _ in range(3):
        await deliver_once(hooks)
        hooks.later(23)
    assert await hooks.rows() == []
    ids = {request.headers["x-amz-sns-message-id"] for request in endpoint.requests}
    assert (len(endpoint.requests), len(ids)) == (3, 1)


@pytest.mark.parametrize("is_raw", [True, False])
async def test_exhausted_notification_goes_to_the_dead_letter_queue(
    hooks: WebHookStore, store: Store, endpoint: Endpoint, is_raw: bool
) -> None:
    queue = await store.make_queue("dead")
    arn = queue_arn(REGION, ACCOUNT, "dead")
    endpoint.behaviour = answer(404)
    subscription_id = await hooks.subscribe(
        endpoint.url, RedrivePolicy=json.dumps({"deadLetterTargetArn": arn})
    )
    # Publishing keeps the attributes of raw ones only.
    attributes = COLOUR if is_raw else None
    await hooks.add(subscription_id, endpoint.url, UNSIGNED, is_raw=is_raw, attributes=attributes)
    await deliver_once(hooks)

    assert await hooks.rows() == []
    assert hooks.moved == [(queue.queue_id, 1)]
    assert (await store.counts(queue)).visible == 1
    async with hooks.database.transaction() as tx:
        [message] = await tx.fetch("SELECT * FROM messages")
    assert message["body"] == (UNSIGNED if is_raw else SIGNED)
    assert message["attributes"] == attributes
    assert hooks.tally.exhausted_count == 1


@pytest.mark.parametrize("name", ["gone", "dead.fifo"])
async def test_without_a_usable_dead_letter_queue_the_delivery_stays(
    hooks: WebHookStore, store: Store, endpoint: Endpoint, name: str
) -> None:
    if name.endswith(".fifo"):
        await store.make_queue(name, FifoQueue="true")
    arn = queue_arn(REGION, ACCOUNT, name)
    endpoint.behaviour = answer(404)
    policy = json.dumps({"deadLetterTargetArn": arn})
    await hooks.add(await hooks.subscribe(endpoint.url, RedrivePolicy=policy), endpoint.url, "a")
    await deliver_once(hooks)

    assert (await hooks.row())["state"] == "exhausted"
    assert hooks.moved == []


async def test_what_the_policy_of_a_dead_letter_queue_does_not_let_in_stays(
    hooks: WebHookStore, store: Store, endpoint: Endpoint
) -> None:
    await store.make_queue("dead")
    arn = queue_arn(REGION, ACCOUNT, "dead")
    endpoint.behaviour = answer(404)
    policy = json.dumps({"deadLetterTargetArn": arn})
    await hooks.add(await hooks.subscribe(endpoint.url, RedrivePolicy=policy), endpoint.url, "a")
    asked: list[tuple[str, str]] = []

    def lets_in(queue: queuegate.storage.queue_model.Queue, topic_arn: str) -> bool:
        asked.append((queue.arn, topic_arn))
        return False

    worker = hooks.worker(allows=lets_in)
    await worker.run_once()
    await worker.stop()
    assert asked == [(arn, TOPIC_ARN)]
    assert ((await hooks.row())["state"], hooks.moved) == ("exhausted", [])


async def test_confirmation_does_not_go_to_the_dead_letter_queue(
    hooks: WebHookStore, store: Store, endpoint: Endpoint
) -> None:
    await store.make_queue("dead")
    endpoint.behaviour = answer(404)
    policy = json.dumps({"deadLetterTargetArn": queue_arn(REGION, ACCOUNT, "dead")})
    subscription_id = await hooks.subscribe(endpoint.url, RedrivePolicy=policy)
    await hooks.add(subscription_id, endpoint.url, "{}", kind="SubscriptionConfirmation")
    await deliver_once(hooks)
    assert (await hooks.row())["state"] == "exhausted"


async def test_without_a_key_nothing_goes_out_and_the_delivery_is_kept(
    hooks: WebHookStore, store: Store, endpoint: Endpoint
) -> None:
    """As the last attempt, too: its dead letter is signed when somebody receives it."""
    await store.make_queue("dead")
    attributes = {
        "RedrivePolicy": json.dumps({"deadLetterTargetArn": queue_arn(REGION, ACCOUNT, "dead")}),
        "DeliveryPolicy": json.dumps({"healthyRetryPolicy": {"numRetries": 1}}),
    }
    subscription_id = await hooks.subscribe(endpoint.url, **attributes)
    await hooks.add(subscription_id, endpoint.url, UNSIGNED, is_raw=False)

    async def no_key(_: str) -> str:
        raise Unavailable("The database is not available at the moment.")

    hooks.sign = no_key
    await deliver_once(hooks)
    row = await hooks.row()
    assert (row["state"], row["last_status"]) == ("pending", None)
    assert row["last_error"] == "not sent: The database is not available at the moment."
    hooks.later(23)
    await deliver_once(hooks)
    assert (endpoint.requests, await hooks.rows()) == ([], [])
    async with hooks.database.transaction() as tx:
        [message] = await tx.fetch("SELECT body, body_md5 FROM messages")
    assert (message["body"], message["body_md5"]) == (
        UNSIGNED,
        queuegate.storage.queue_model.UNSIGNED,
    )
