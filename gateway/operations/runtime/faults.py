"""Faults on purpose: rules that make matching requests and deliveries fail, late or twice.

Rules are stored, and each process has a copy (``Engine.faults``). A match of a rule has a number,
which the database counts, so several processes share the counts. Seed and number of a match
decide if the rule fires. This module is imported when there is a rule.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextvars import ContextVar
from random import Random, SystemRandom
from typing import (
    TYPE_CHECKING,
    Annotated,
    Final,
    Generic,
    Literal,
    NamedTuple,
    TypeVar,
    get_args,
)

import msgspec
from msgspec import Meta, Struct, field, structs

from queuegate.gateway.operations.access.authorization import EFFECTS
from queuegate.gateway.operations.queues.receives import release
from queuegate.gateway.operations.queues.sends import SendRequest
from queuegate.gateway.operations.runtime.background_tasks import spawn
from queuegate.protocol import names
from queuegate.protocol.service_detection import SERVICES
from queuegate.storage import stored_faults
from queuegate.storage.notifications import Notice
from queuegate.storage.queue_model import NewMessage, Queue, Received, SentMessage
from queuegate.storage.storage_errors import InjectedFault, MalformedInput, Unavailable

if TYPE_CHECKING:
    from queuegate.gateway.operations.runtime.engine import Engine
    from queuegate.storage.database import Transaction
    from queuegate.storage.lanes import Reply
    from queuegate.storage.topics.web_hook_deliveries import ClaimedDelivery

_log = logging.getLogger("queuegate.faults")

T = TypeVar("T")

MOST_RULES: Final = 256
Kind = Literal[
    "error", "latency", "drop", "half_close", "truncate", "lost", "late", "reorder", "duplicate",
    "timeout",
]  # fmt: skip
Ending = Literal["", "drop", "half_close", "truncate", "lost"]
Face = Literal["aws", "rest", "simple", "text", "channels", "logs"]
_OF_MESSAGES: Final = {
    "late": ("SendMessage",),
    "reorder": ("ReceiveMessage",),
    "duplicate": ("DeleteMessage", "ReceiveMessage"),
}
"""Kinds for messages of standard queues, and their operations; the first is the default. They apply
to batches, too."""
_OF_ENDPOINTS: Final = ("error", "timeout", "latency")
_BATCH = "Batch"
_SHUFFLED: Final = 10
"""Messages of which a receive out of order takes some."""
_OPERATIONS: Final = frozenset(right.partition(":")[2] for right in EFFECTS) | frozenset(
    action for service in SERVICES.values() for action in service.actions
)
_SERVICES: Final = sorted({*(right.partition(":")[0] for right in EFFECTS), *SERVICES})

_Text = Annotated[str, Meta(pattern=r"^[^\x00-\x1f\x7f]+$(?!\n)", max_length=2048)]
_Action = Annotated[_Text, Meta(description="An action of AWS, on every face that has it.")]
_Endpoint = Annotated[_Text, Meta(description="The beginning of the URL of a web hook.")]
_Code = Annotated[str, Meta(pattern=r"^[A-Za-z][A-Za-z0-9.]{0,127}$(?!\n)")]
_Latency = Annotated[int, Meta(ge=0, le=60_000, description="Before the work, with any kind.")]
_Jitter = Annotated[
    int, Meta(ge=0, le=60_000, description="Up to so many more, drawn; for late, of the delay.")
]
_Delay = Annotated[
    int, Meta(ge=1, le=840_000, description="For late: how much later a message becomes visible.")
]
_Count = Annotated[int, Meta(ge=1, le=1_000_000_000, description="Maximum number of fires.")]


class FaultError(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """The error of a rule. Status and text have defaults by the code."""

    code: _Code = "ServiceUnavailable"
    status: Annotated[int, Meta(ge=400, le=599)] | None = field(default=None, name="statusCode")
    message: _Text | None = None


class FaultRule(Struct, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """A rule. The members up to `face` select requests, or with `endpoint` deliveries."""

    service: _Text | None = None
    operation: _Action | None = None
    queue: _Text | None = None
    topic: _Text | None = None
    endpoint: _Endpoint | None = None
    account: Annotated[str, Meta(pattern="^[0-9]{12}$", max_length=12)] | None = None
    region: _Text | None = None
    face: Face | None = None
    kind: Kind | None = None
    error: FaultError | _Code | None = None
    latency_ms: _Latency = 0
    jitter_ms: _Jitter = 0
    delay_ms: _Delay | None = None
    probability: Annotated[float, Meta(ge=0, le=1)] = 1.0
    seed: Annotated[int, Meta(ge=0, lt=2**53)] | None = None
    count: _Count | None = None
    ttl_seconds: Annotated[float, Meta(gt=0, le=31_536_000)] | None = None


def checked(rule: FaultRule) -> FaultRule:
    """Return a rule with its kind, its error and a seed. Raises MalformedInput."""
    kind = rule.kind or ("error" if rule.error else "latency")
    error = FaultError(rule.error) if isinstance(rule.error, str) else rule.error
    if kind == "error":
        error = error or FaultError()
    operation, allowed = rule.operation, _OF_MESSAGES.get(kind, ())
    if allowed:
        operation = (operation or allowed[0]).removesuffix(_BATCH)
    for is_wrong, text in _mistakes(rule, kind, operation):
        if is_wrong:
            raise MalformedInput(text)
    delay_ms = rule.delay_ms or (1000 if kind == "late" else None)
    seed = SystemRandom().getrandbits(32) if rule.seed is None else rule.seed
    return structs.replace(
        rule, kind=kind, error=error, operation=operation, delay_ms=delay_ms, seed=seed
    )


def _mistakes(rule: FaultRule, kind: Kind, operation: str | None) -> Iterator[tuple[object, str]]:
    """Yield conditions under which there can be no such rule, with the texts of the refusals."""
    service, action = names.printable(rule.service or ""), names.printable(rule.operation or "")
    yield kind != "error" and rule.error, "`error` goes with the kind error, and not with others."
    is_nothing = kind == "latency" and not (rule.latency_ms or rule.jitter_ms)
    kinds = ", ".join(get_args(Kind))
    yield is_nothing, f"Say what goes wrong: `kind`, one of {kinds}, or `error`."
    services = ", ".join(_SERVICES)
    is_strange = rule.service not in (None, *_SERVICES)
    yield is_strange, f"The service {service} is none of {services}."
    yield (
        rule.operation not in (None, *_OPERATIONS),
        f"The operation {action} is not known: it is the name of an action of AWS, such as "
        "SendMessage.",
    )
    of_messages = _OF_MESSAGES.get(kind, (operation,))
    is_unfit = operation not in of_messages
    yield is_unfit, f"The kind {kind} is for {' or '.join(map(str, of_messages))}."
    is_fifo = kind in _OF_MESSAGES and (rule.queue or "").endswith(".fifo")
    yield is_fifo, f"The kind {kind} is for standard queues: FIFO queues keep their order."
    is_late = rule.delay_ms is not None and kind != "late"
    yield is_late, "`delay_ms` goes with the kind late, and `latency_ms` with all."
    if rule.endpoint is None:
        yield kind == "timeout", "`timeout` is for web hooks: name the `endpoint`."
        return
    kinds = ", ".join(_OF_ENDPOINTS)
    yield kind not in _OF_ENDPOINTS, f"With `endpoint`, the kind is one of {kinds}."
    yield (
        rule.operation or rule.queue or rule.face or rule.service not in (None, "sns"),
        "`endpoint` selects deliveries: of the rest, account, region and topic can.",
    )


class FaultTarget(NamedTuple):
    """The request or delivery that rules are compared with."""

    service: str
    action: str
    """The action of AWS, or the one that has the same permission."""
    resources: frozenset[str]
    """Names of queues or topics in the request."""
    account_id: str
    region: str
    face: str = ""
    endpoint: str | None = None
    """The URL of a delivery."""


class ActiveFault(FaultRule, kw_only=True):
    """A rule in use, with its counts."""

    id: int
    matched: int
    fired: int
    until: float | None

    @property
    def is_over(self) -> bool:
        """Return True if the rule has fired as often as it may."""
        return self.count is not None and self.fired >= self.count

    def matches(self, target: FaultTarget) -> bool:
        """Return True if the rule is for such requests."""
        service, action, resources, account_id, region, face, endpoint = target
        if self.is_over or (endpoint is None) != (self.endpoint is None):
            return False
        name, other = self.queue, self.topic
        if service == "sns":
            name, other = other, name
        plain = action.removesuffix(_BATCH) if self.kind in _OF_MESSAGES else action
        return (
            other is None
            and (name is None or name in resources)
            and self.service in (None, service)
            and self.operation in (None, plain)
            and self.face in (None, face)
            and self.account in (None, account_id)
            and self.region in (None, region)
            and (endpoint or "").startswith(self.endpoint or "")
        )

    async def take_turn(self, engine: Engine) -> Random | None:
        """Count a match. Return the generator of its further draws if the rule fires."""
        async with engine.database.transaction() as tx:
            stored = await _read(tx, locks=True)
            own = next((one for one in stored.rules if one.id == self.id), None)
            if own is None or own.is_over:
                self.fired = self.fired if own is None else own.fired
                return None
            own.matched += 1
            draws = Random(f"{self.seed}:{own.matched}")
            fires = draws.random() < self.probability
            own.fired += fires
            self.fired = own.fired
            await stored_faults.write(tx, msgspec.json.encode(stored))
        return draws if fires else None


class FaultSet(Struct):
    """All rules, as they are stored."""

    rules: list[ActiveFault] = []
    last: int = 0
    """The highest id ever used."""
    changes: int = 0
    """The number of changes so far."""
    now: float = 0.0
    """The present by the server's clock, in seconds since the epoch."""


async def _read(tx: Transaction, *, locks: bool = False) -> FaultSet:
    """Return the rules that have not ended. ``locks``: nobody else changes or counts until the
    transaction ends."""
    text, now = await stored_faults.read(tx, locks=locks)
    found = msgspec.json.decode(text or "{}", type=FaultSet)
    rules = [one for one in found.rules if one.until is None or one.until > now]
    return structs.replace(found, rules=rules, now=now)


async def find_all(engine: Engine) -> FaultSet:
    """Return the rules of all processes."""
    async with engine.database.transaction() as tx:
        return await _read(tx)


CURRENT: ContextVar[tuple[ActiveFault, Random] | None] = ContextVar("queuegate_fault", default=None)
"""The rule with effects on messages of the current request, and the generator of its draws."""


class Faults:
    """The rules of this process."""

    def __init__(self, engine: Engine, rules: Sequence[ActiveFault]) -> None:
        self._engine = engine
        self._rules = rules
        self.ends: asyncio.TimerHandle | None = None
        """The look for rules that end."""

    def __len__(self) -> int:
        return len(self._rules)

    async def meet(self, target: FaultTarget) -> Ending:
        """Apply the rules to a request: sleep or raise InjectedFault. Return how its answer ends.

        Latencies of rules that fire add up. The first other rule that fires is the last one.
        """
        milliseconds, found = 0.0, None
        for rule in self._rules:
            draws = await rule.take_turn(self._engine) if rule.matches(target) else None
            if draws is None:
                continue
            jitter_ms = 0 if rule.kind == "late" else rule.jitter_ms
            milliseconds += rule.latency_ms + draws.random() * jitter_ms
            if rule.kind != "latency":
                found = rule, draws
                break
        if milliseconds:
            await asyncio.sleep(milliseconds / 1000)
        if found is None:
            return ""
        rule, draws = found
        if isinstance(rule.error, FaultError):
            raise InjectedFault(rule.error.code, rule.error.status, rule.error.message)
        match rule.kind:
            case "drop" | "half_close" | "truncate" | "lost":
                return rule.kind
            case "late" | "reorder" | "duplicate":
                CURRENT.set(found)
            case "timeout":
                raise TimeoutError
        return ""

    def late_send(
        self,
        queue: Queue,
        messages: list[NewMessage],
        how: SendRequest,
        reply: Reply[list[SentMessage]],
    ) -> tuple[list[NewMessage], SendRequest, Reply[list[SentMessage]]]:
        """Return a send whose messages become visible late, if a rule says so."""
        effects = self._effects_on(queue, "late")
        if effects is None:
            return messages, how, reply
        rule, draws = effects
        due: list[int] = []
        later: list[NewMessage] = []
        for message in messages:
            seconds = message.delay_seconds
            due.append((queue.delay_seconds if seconds is None else seconds) * 1000)
            due[-1] += (rule.delay_ms or 0) + int(draws.random() * rule.jitter_ms)
            # Until the statement after the commit, whole seconds hide the message.
            later.append(message._replace(delay_seconds=math.ceil(due[-1] / 1000)))

        async def show(sent: list[SentMessage]) -> list[SentMessage]:
            by_number = {one.sequence or 0: ms for one, ms in zip(sent, due, strict=True)}
            async with self._engine.database.transaction() as tx:
                now = self._engine.clock.of(queue.account_id).now()
                await stored_faults.show_at(tx, now, queue.queue_id, by_number)
            loop, arrived = asyncio.get_running_loop(), self._engine.wakeups.arrived
            for milliseconds in due:
                loop.call_later(milliseconds / 1000, arrived, queue.queue_id, 1)
            return sent if how.wants_sequences else [one._replace(sequence=None) for one in sent]

        return later, how._replace(wants_sequences=True), _Then(reply, show)

    def duplicates(self, queue: Queue) -> bool:
        """Return True if the messages of this delete are to be delivered again."""
        return self._effects_on(queue, "duplicate") is not None

    def _effects_on(self, queue: Queue, kind: Kind) -> tuple[ActiveFault, Random] | None:
        effects = CURRENT.get()
        is_met = effects is not None and effects[0].kind == kind and not queue.kind.has_groups
        return effects if is_met else None

    def receive(
        self, queue: Queue, limit: int, visibility_ms: int, reply: Reply[list[Received]]
    ) -> tuple[int, int, Reply[list[Received]]]:
        """Return limit, timeout and reply of a receive whose messages are delivered again at once,
        or out of order."""
        if self.duplicates(queue):
            return limit, 0, reply
        effects = self._effects_on(queue, "reorder")
        if effects is None:
            return limit, visibility_ms, reply

        async def shuffle(received: list[Received]) -> list[Received]:
            effects[1].shuffle(received)
            if received[limit:]:
                await release(self._engine, queue, received[limit:])
            return received[:limit]

        return max(limit, _SHUFFLED), visibility_ms, _Then(reply, shuffle)

    async def meet_delivery(self, claimed: ClaimedDelivery, seconds: float) -> int | None:
        """Apply the rules to a delivery. Return the status with which it fails; 0: no answer;
        None: it is made. A latency of more than ``seconds`` is no answer."""
        target = FaultTarget(
            "sns",
            "",
            frozenset((claimed.topic_name,)),
            claimed.account_id,
            claimed.region,
            endpoint=claimed.endpoint,
        )
        try:
            async with asyncio.timeout(seconds):
                await self.meet(target)
        except InjectedFault as fault:
            return fault.status or 503
        except TimeoutError:
            return 0
        return None


class _Then(Generic[T]):
    """A reply whose result passes through ``then``."""

    def __init__(self, reply: Reply[T], then: Callable[[T], Awaitable[T]]) -> None:
        self._reply = reply
        self._then = then
        self.failed = reply.failed

    def done(self, result: T) -> None:
        spawn(self._finish(result))

    async def _finish(self, result: T) -> None:
        try:
            result = await self._then(result)
        except Unavailable as error:
            _log.warning("a fault has not its whole effect: %s", error)
        self._reply.done(result)


async def change(
    engine: Engine,
    adds: Sequence[FaultRule] = (),
    removes: Callable[[ActiveFault], bool] = lambda _: False,
) -> tuple[list[ActiveFault], int]:
    """Remove and add rules, and return when every process uses them: the added ones, and how many
    were removed. Raises MalformedInput, and changes nothing, for too many."""
    async with engine.database.transaction() as tx:
        stored = await _read(tx, locks=True)
        kept = [one for one in stored.rules if not removes(one)]
        removed = len(stored.rules) - len(kept)
        if len(kept) + len(adds) > MOST_RULES:
            raise MalformedInput(f"There are at most {MOST_RULES} rules: remove some first.")
        added = []
        for number, rule in enumerate(adds, stored.last + 1):
            until = None if rule.ttl_seconds is None else stored.now + rule.ttl_seconds
            members = structs.asdict(rule)
            added.append(ActiveFault(id=number, matched=0, fired=0, until=until, **members))
        changed = FaultSet(kept + added, stored.last + len(adds), stored.changes + 1)
        await stored_faults.write(tx, msgspec.json.encode(changed), notifies=True)
    await reload(engine)
    await engine.wakeups.wait_until_applied(Notice.FAULTS_CHANGED, changed.changes)
    return added, removed


async def reload(engine: Engine) -> int:
    """Read the rules of all processes, and use them from now on. Return the number of their last
    change."""
    async with engine.faults_reading:
        stored = await find_all(engine)
        _use(engine, stored)
    return stored.changes


def _use(engine: Engine, stored: FaultSet) -> None:
    """Use these rules, until the first of them ends."""
    was_on, rules = engine.faults is not None, stored.rules
    if was_on and engine.faults.ends is not None:
        engine.faults.ends.cancel()
    engine.faults = Faults(engine, rules) if rules else None
    engine.on_faults(bool(rules))
    if rules and not was_on:
        _log.warning("faults are on: requests fail by the %d of /_admin/faults", len(rules))
    elif was_on and not rules:
        _log.warning("faults are off")
    ends = [one.until - stored.now for one in rules if one.until is not None]
    if ends:
        # As if another process had changed the rules.
        notified = engine.wakeups.on["faults_changed"]
        loop = asyncio.get_running_loop()
        engine.faults.ends = loop.call_later(min(ends) + 0.01, notified)
