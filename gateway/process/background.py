"""Background workers: beside the faces of a gateway, or alone as ``queuegate worker``."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Protocol

from queuegate.gateway.faces.aws import aws_refusals
from queuegate.gateway.faces.aws.sns import sns_publishing
from queuegate.gateway.http.listening import links_url
from queuegate.gateway.operations.logs import queue_feeds
from queuegate.gateway.operations.runtime.account_clocks import ScheduleClocks
from queuegate.gateway.operations.schedules.dispatch import Dispatcher
from queuegate.gateway.operations.topics import fan_out
from queuegate.gateway.operations.topics.fan_out import allows_copy
from queuegate.protocol import sns_envelopes
from queuegate.scheduler import all_workers
from queuegate.scheduler.delivery_limits import enforce_delivery_limits
from queuegate.scheduler.feed_queues import FeedCallbacks as FeedNeeds
from queuegate.scheduler.feed_queues import FeedQueues
from queuegate.scheduler.replay import ReplayCallbacks
from queuegate.scheduler.schedule_worker import FireOptions, FireSchedules
from queuegate.scheduler.webhook_outcomes import DeliveryOutcome, judge, no_answer
from queuegate.scheduler.webhook_worker import Deliver, DeliveryOptions, Sign
from queuegate.scheduler.worker import IdleProbe, Worker, last_rounds

if TYPE_CHECKING:
    from queuegate.gateway.configuration.settings import Settings
    from queuegate.gateway.operations.runtime.engine import Engine
    from queuegate.gateway.tracing.spans import Tracing
    from queuegate.storage.queue_model import Queue
    from queuegate.storage.topics.web_hook_deliveries import ClaimedDelivery


# The supervisor kills a process 5 s after the deadline of requests.
_STOP_SECONDS = 3.0


class BackgroundWorker(Protocol):
    """A worker that runs until it is stopped."""

    def start(self, *, after_seconds: float = 0.0) -> None:
        """Start after this delay."""

    async def stop(self) -> None:
        """Finish work in progress within seconds, and end."""


def workers_for(
    engine: Engine, settings: Settings, tracing: Tracing | None = None
) -> list[BackgroundWorker]:
    """Return the configured workers. Any number of processes may run them."""
    chores = IdleProbe(engine.database)
    engine.series.rounds = last_rounds
    workers: list[BackgroundWorker] = [
        time_keeping(engine, reports_distance=True),
        *all_workers(
            chores,
            engine.clock,
            engine.wakeups.arrived,
            ReplayCallbacks(
                partial(fan_out.copier, engine=engine),
                has_capacity=lambda: not engine.refuses_sends,
            ),
            queue_recreate_seconds=engine.rules.queue_recreate_seconds,
            outbox_days=engine.rules.outbox_days,
        ),
    ]
    workers.append(feeding_queues(engine))
    workers.append(
        enforce_delivery_limits(
            engine.database, engine.clock, partial(_dead_lettered, engine), chores
        )
    )
    if settings.delivery_enabled:
        deliver = Deliver(
            engine.database,
            engine.clock,
            _options(engine, settings, tracing),
            sign=_signing(engine),
            on_moved=engine.wakeups.arrived,
            tally=engine.series.deliveries,
        )
        deliver.chores = chores
        deliver.recorded = engine.events.rings
        engine.wakeups.on["deliveries"] = deliver.wake
        workers.append(deliver)
    if settings.schedule_enabled:
        workers.append(_firing(engine, settings, tracing, chores))
    return workers


def time_keeping(engine: Engine, *, reports_distance: bool = False) -> BackgroundWorker:
    """Return the worker that every process has. One of a gateway reports the clock's distance."""
    engine.keeper.reports_distance = reports_distance
    return Worker(engine.keeper)


def _dead_lettered(engine: Engine, queue: Queue, target_id: int, count: int) -> None:
    engine.series.dead_lettered(queue, count)
    engine.wakeups.arrived(target_id, count)


def feeding_queues(engine: Engine) -> FeedQueues:
    """Return the worker that feeds records of logs into queues."""
    feed = FeedQueues(
        engine.database,
        FeedNeeds(
            queue_feeds.FeedHints(engine),
            partial(queue_feeds.find_queue, engine),
            queue_feeds.make_row,
            now_of=lambda account_id: engine.clock.of(account_id).now(),
            has_capacity=lambda: not engine.refuses_sends,
            on_moved=partial(queue_feeds.moved, engine),
            on_queue_gone=engine.queues.forget,
        ),
    )

    def log_changed(log_id: int | None) -> None:
        engine.logs.changed(log_id)
        feed.changed()

    engine.wakeups.on["log_changed"] = log_changed
    return feed


def _firing(
    engine: Engine, settings: Settings, tracing: Tracing | None, chores: IdleProbe
) -> FireSchedules:
    base_url = links_url(settings) or f"http://localhost:{settings.port}"
    dispatcher = Dispatcher(engine, base_url, sns_publishing.check, aws_refusals.invocation_failure)
    fire = FireSchedules(
        engine.database,
        ScheduleClocks(engine.clock),
        FireOptions(settings.schedule_poll_ms / 1000, settings.schedule_batch_size),
        dispatch=dispatcher if tracing is None else tracing.dispatch(dispatcher),
        tally=engine.series.schedules,
    )
    fire.chores = chores
    fire.recorded = engine.events.rings
    engine.wakeups.on["schedules"] = fire.wake
    return fire


def _options(engine: Engine, settings: Settings, tracing: Tracing | None) -> DeliveryOptions:
    options = DeliveryOptions(
        poll_seconds=settings.delivery_poll_ms / 1000,
        timeout_seconds=float(settings.delivery_timeout_seconds),
        batch_size=settings.delivery_batch_size,
        concurrency=settings.delivery_concurrency,
        stop_seconds=min(_STOP_SECONDS, settings.shutdown_deadline_seconds),
        allow_private=engine.rules.private_webhooks,
        ca_file=settings.webhook_ca_file,
        allows=partial(allows_copy, engine),
        fail=partial(_failed_on_purpose, engine, settings.delivery_timeout_seconds),
    )
    return options if tracing is None else replace(options, trace=tracing.delivery)


async def _failed_on_purpose(
    engine: Engine, timeout_seconds: float, claimed: ClaimedDelivery
) -> DeliveryOutcome | None:
    if engine.faults is None:
        return None
    status = await engine.faults.meet_delivery(claimed, timeout_seconds)
    if status is None:
        return None
    return judge(status) if status else no_answer("no answer: a fault on purpose")


def _signing(engine: Engine) -> Sign:
    async def sign(envelope: str) -> str:
        if not sns_envelopes.is_unsigned(envelope):
            return envelope
        [signature] = await engine.signer.sign_many([sns_envelopes.to_sign(envelope)])
        return sns_envelopes.with_signature(envelope, signature, engine.signer.fingerprint)

    return sign
