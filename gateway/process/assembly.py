"""Assembly of a process's engine: build, open and close it in order."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Hashable
from secrets import token_bytes
from typing import TYPE_CHECKING

from queuegate.gateway.operations.access.key_cache import KeySecrets
from queuegate.gateway.operations.access.policies import Everybody, OwnAccounts, PolicyChecks
from queuegate.gateway.operations.queues.queue_cache import InFlightCounts, QueueCache
from queuegate.gateway.operations.runtime import account_clocks as clocks
from queuegate.gateway.operations.runtime import background_tasks, poller
from queuegate.gateway.operations.runtime.engine import Engine, EngineRules
from queuegate.gateway.operations.runtime.limits import LIMITS
from queuegate.gateway.operations.runtime.wakeups import Wakeups
from queuegate.gateway.operations.telemetry.series import Series
from queuegate.gateway.operations.topics.message_signing import EnvelopeSigner
from queuegate.gateway.operations.topics.topic_cache import TopicCache
from queuegate.gateway.process.key_files import supplied_key
from queuegate.protocol.opaque_tokens import SECRET_BYTES
from queuegate.storage import stored_clocks as stored_settings
from queuegate.storage import stored_faults
from queuegate.storage.database import Database
from queuegate.storage.model import Quota, RateLimit
from queuegate.storage.queues import stored_queues
from queuegate.storage.queues.fifo_lanes import FifoLanes
from queuegate.storage.queues.standard_lanes import StandardLanes
from queuegate.storage.topics.publishing import PublishLane

if TYPE_CHECKING:
    from queuegate.gateway.configuration.settings import Settings
    from queuegate.gateway.operations.access.policies import Authority
    from queuegate.gateway.tracing.spans import Tracing
    from queuegate.storage.lanes import ClockNow


@contextlib.asynccontextmanager
async def open_engine(
    settings: Settings, dsn: str, tracing: Tracing | None = None
) -> AsyncIterator[Engine]:
    """Yield the open engine of this process, and close it in order."""
    database = Database(
        dsn,
        pool_dsn=settings.database_url,
        max_connections=settings.max_database_connections,
    )
    await database.open()
    engine = build_engine(settings, database, tracing)
    # Before this process listens: others take one that listens for one that keeps the time.
    await _keep_time(engine)
    await engine.wakeups.start()
    try:
        await _load(engine, settings)
        async with database.transaction() as tx:
            rules, _ = await stored_faults.read(tx)
        if rules is not None:
            from queuegate.gateway.operations.runtime import faults

            await faults.reload(engine)
        yield engine
    finally:
        engine.stopping = True
        engine.wakeups.wake_all()
        await background_tasks.settle()
        await engine.close()
        # The last flushes may have leased messages for disconnected callers: release these, too.
        await background_tasks.settle()
        await engine.wakeups.stop()
        await database.close()


async def _keep_time(engine: Engine) -> None:
    keeper, clock = engine.keeper, engine.clock
    await keeper.begin()
    clock.present = keeper.now
    clock.present_of_sends = keeper.now_of_sends
    clock.present_of_schedules = keeper.now_of_clock


async def _load(engine: Engine, settings: Settings) -> None:
    async with engine.database.transaction() as tx:
        stored = await stored_settings.read_clock(tx)
        secret = await stored_queues.agree_on_receipt_secret(tx, token_bytes(SECRET_BYTES))
    engine.clock.move(stored)
    engine.receipts.use(secret)
    engine.console.use(secret.secret, may_change=settings.console == "on")
    await engine.keys.load()
    await engine.quotas.load()
    await engine.events.load()


@contextlib.asynccontextmanager
async def atomic_engine(settings: Settings, engine: Engine) -> AsyncIterator[Engine]:
    """Yield an engine for an administrator whose operations are one transaction, one after another.
    It meets no faults of /_admin/faults.

    It commits unless the block raises. Then ``engine`` drops what it has cached; transactions
    notify other processes.
    """
    async with engine.database.one_transaction() as database:
        atomic = build_engine(settings, database)
        atomic.authority = atomic.policies = None
        try:
            await _load(atomic, settings)
            yield atomic
        finally:
            await atomic.close()
    engine.wakeups.all_changed()


def authority_of(settings: Settings, /) -> Authority | None:
    """Return the authority over requests. None without verified signatures: all is allowed."""
    return OwnAccounts() if settings.auth == "sigv4" else None


def policies_of(settings: Settings, engine: Engine, /) -> PolicyChecks | None:
    """Return the policies of queues, topics and keys; None if they are off."""
    if settings.policy_mode == "off":
        return None
    policies = PolicyChecks(engine.clock, enforces=settings.policy_mode == "enforce")
    policies.policy_of = engine.keys.policy_of
    return policies


def build_engine(settings: Settings, database: Database, tracing: Tracing | None = None) -> Engine:
    """Build the engine on an open pool; nothing else is connected yet."""
    clock = clocks.Clock()
    now: ClockNow = clock.now
    now_of_sends: ClockNow = clock.now_of_sends
    series = Series(clock.timestamp)
    standard = _standard_lanes(settings, database, now, now_of_sends)
    engine = Engine(
        database=database,
        queues=QueueCache(database),
        standard=standard,
        fifo=FifoLanes(database, now, standard.visibility, now_of_sends),
        wakeups=Wakeups(database),
        clock=clock,
        series=series,
        in_flight=InFlightCounts(database, LIMITS.in_flight_messages),
        topics=TopicCache(database),
        publish=PublishLane(database, now_of_sends, standard.lower_marks),
        signer=EnvelopeSigner(database, region=settings.region, supplied=supplied_key(settings)),
        rules=EngineRules(
            settings.purge_interval_seconds,
            settings.queue_recreate_seconds,
            settings.default_visibility_timeout_seconds,
            settings.allows_private_webhooks,
            settings.signing_cert_url_base,
            settings.sign_queue_envelopes,
            settings.outbox_days,
            settings.schedule_preview_count,
            settings.schedule_list_max,
            settings.region,
            settings.queue_urls,
            settings.channel_ack_window_seconds,
            settings.channel_max_deliveries,
            opens_quotas=settings.ephemeral and settings.auth != "sigv4",
            push_heartbeat_seconds=settings.push_heartbeat_seconds,
        ),
    )
    engine.consumers.beat_every(settings.push_heartbeat_seconds)
    engine.authority = authority_of(settings)
    engine.verifies = settings.auth == "sigv4"
    if settings.master_keys is not None:
        engine.keys.secrets = KeySecrets(*settings.master_keys)
    engine.policies = policies_of(settings, engine)
    if engine.policies is not None:
        engine.authority = engine.authority or Everybody()
    engine.rates.default = _limit(settings.channel_rate_limit)
    engine.quotas.use(_quota(settings), _limit(settings.quota_key_requests))
    poller.connect(engine)
    engine.wakeups.on["topic_changed"] = engine.topics.forget
    account_of = _account_of(engine)
    for lane in engine.lanes:
        lane.account_of = account_of
        lane.clocks = clock.accounts
        own = series.lane(lane.name)
        lane.observe, lane.timed = own.entries.observe, own.timed
        lane.tracing = tracing
    engine.wakeups.is_traced = tracing is not None
    return engine


def _quota(settings: Settings) -> Quota:
    return Quota(
        _limit(settings.quota_requests),
        settings.quota_queues,
        settings.quota_topics,
        settings.quota_subscriptions,
        settings.quota_logs,
    )


def _standard_lanes(
    settings: Settings, database: Database, now: ClockNow, now_of_sends: ClockNow
) -> StandardLanes:
    return StandardLanes(
        database,
        now,
        now_of_sends,
        linger_seconds=settings.linger_ms / 1000,
        relaxes_deletes=settings.delete_commit == "relaxed",
    )


def _limit(given: tuple[int, int] | None) -> RateLimit | None:
    return None if given is None else RateLimit(*given)


def _account_of(engine: Engine) -> Callable[[Hashable], Hashable]:
    """Return a function from a fairness key (``Entry.party``) to its account.

    Keys are queue ids and topic ARNs. Lanes serve accounts round-robin.
    """

    def account_of(party: Hashable) -> Hashable:
        if isinstance(party, str):
            return party.split(":")[4]
        return engine.queues.account_of(party) if isinstance(party, int) else None

    return account_of
