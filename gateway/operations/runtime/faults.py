"""Faults on purpose: rules that make matching requests and deliveries fail, late or twice.

Rules are stored, and each process has a copy (``Engine.faults``). A match of a rule has a number,
which the database counts, so several processes share the counts. Seed and number of a match
decide if the rule fires. This module is imported when there is a rule.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Sequence
from contextvars import ContextVar
from random import Random, SystemRandom
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
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
from queuegate.storage.queue_model import NewMessage, Queue, Received, SentMessage
from queuegate.storage.storage_errors import InjectedFault, Unavailable

if TYPE_CHECKING:
    from queuegate.gateway.operations.runtime.engine import Engine
    from queuegate.storage.lanes import Reply
    from queuegate.storage.topics.web_hook_deliveries import ClaimedDelivery

_log = logging.getLogger("queuegate.faults")

T = TypeVar("T")

MOST_RULES: Final = 256
COUNTS: Final = ("id", "matched", "fired", "until")
"""Members of a stored rule beside those of ``FaultRule``."""
Kind = Literal[
    "error", "latency", "drop", "half_close", "truncate", "lost", "late", "reorder", "duplicate",
    "timeout",
]  # fmt: skip
KINDS: Final[tuple[str, ...]] = get_args(Kind)
Ending = Literal["", "drop", "half_close", "truncate", "lost"]
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
_SERVICES: Final = frozenset(right.partition(":")[0] for right in EFFECTS) | SERVICES.keys()
_FACES: Final = ("aws", "rest", "simple", "text", "channels", "logs")

_PRINTABLE: Final = r"^[^\x00-\x1f\x7f]+\Z"
_Text = Annotated[str, Meta(pattern=_PRINTABLE, max_length=2048)]
_Code = Annotated[str, Meta(pattern=r"^[A-Za-z][A-Za-z0-9.]{0,127}\Z")]
_Milliseconds = Annotated[int, Meta(ge=0, le=60_000)]


class FaultError(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """The error of a rule. Status and text have defaults by the code."""

    code: _Code = "ServiceUnavailable"
    status: Annotated[int, Meta(ge=400, le=599)] | None = field(default=None, name="statusCode")
    message: _Text | None = None


class FaultRule(Struct, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """A rule. The first group of members selects requests, or with ``endpoint`` deliveries."""

    service: _Text | None = None
    operation: _Text | None = None
    """An action of AWS, on every face that has it."""
    queue: _Text | None = None
    topic: _Text | None = None
    endpoint: _Text | None = None
    """The beginning of the URL of a web hook."""
    account: Annotated[str, Meta(pattern=r"^[0-9]{12}\Z")] | None = None
    region: _Text | None = None
    face: _Text | None = None
    kind: Kind | None = None
    error: FaultError | _Code | None = None
    latency_ms: _Milliseconds = 0
    """Before the work, with any kind."""
    jitter_ms: _Milliseconds = 0
    """Up to so many more, drawn; for the kind late, of the delay."""
    delay_ms: Annotated[int, Meta(ge=1, le=840_000)] | None = None
    """``late``: how much later a sent message becomes visible."""
    probability: Annotated[float, Meta(ge=0, le=1)] = 1.0
    seed: Annotated[int, Meta(ge=0, lt=2**53)] | None = None
    count: Annotated[int, Meta(ge=1, le=1_000_000_000)] | None = None
    """Maximum number of fires; None: no limit."""
    ttl_seconds: Annotated[float, Meta(gt=0, le=31_536_000)] | None = None


class BadFault(Exception):
    """A rule that is refused. The text says what is allowed."""

    def __init__(self, text: str, status: int = 400) -> None:
        super().__init__(text)
        self.status = status


def checked(rule: FaultRule) -> FaultRule:
    """Return a rule with its kind, its error and a seed. Raises BadFault."""
    kind = rule.kind or ("error" if rule.error else "latency")
    error = FaultError(rule.error) if isinstance(rule.error, str) else rule.error
    if kind == "error":
        error = error or FaultError()
    elif error is not None:
        raise BadFault("`error` goes with the kind error, and not with others.")
    if kind == "latency" and not (rule.latency_ms or rule.jitter_ms):
        raise BadFault(f"Say what goes wrong: `kind`, one of {', '.join(KINDS)}, or `error`.")
    _check_names(rule)
    _check_place(rule, kind)
    operation, delay_ms = rule.operation, rule.delay_ms
    if kind in _OF_MESSAGES:
        operation = _operation_of(rule, kind)
    if kind == "late":
        delay_ms = delay_ms or 1000
    elif delay_ms is not None:
        raise BadFault("`delay_ms` goes with the kind late, and `latency_ms` with all.")
    seed = SystemRandom().getrandbits(32) if rule.seed is None else rule.seed
    return structs.replace(
        rule, kind=kind, error=error, operation=operation, delay_ms=delay_ms, seed=seed
    )


def _check_names(rule: FaultRule) -> None:
    for name, value, allowed in (
        ("service", rule.service, sorted(_SERVICES)),
        ("face", rule.face, _FACES),
    ):
        if value is not None and value not in allowed:
            raise BadFault(f"The {name} {names.printable(value)} is none of {', '.join(allowed)}.")
    if rule.operation is not None and rule.operation not in _OPERATIONS:
        raise BadFault(
            f"The operation {names.printable(rule.operation)} is not known: it is the name of an "
            "action of AWS, such as SendMessage."
        )


def _check_place(rule: FaultRule, kind: str) -> None:
    if rule.endpoint is None:
        if kind == "timeout":
            raise BadFault("`timeout` is for web hooks: name the `endpoint`.")
        return
    if kind not in _OF_ENDPOINTS:
        raise BadFault(f"With `endpoint`, the kind is one of {', '.join(_OF_ENDPOINTS)}.")
    if rule.operation or rule.queue or rule.face or rule.service not in (None, "sns"):
        raise BadFault("`endpoint` selects deliveries: of the rest, account, region and topic can.")


def _operation_of(rule: FaultRule, kind: str) -> str:
    allowed = _OF_MESSAGES[kind]
    operation = (rule.operation or allowed[0]).removesuffix(_BATCH)
    if operation not in allowed:
        raise BadFault(f"The kind {kind} is for {' or '.join(allowed)}.")
    if rule.queue is not None and rule.queue.endswith(".fifo"):
        raise BadFault(f"The kind {kind} is for standard queues: FIFO queues keep their order.")
    return operation


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


class LiveFault:
    """A rule in use."""

    __slots__ = ("_is_over", "fault_id", "rule")

    def __init__(self, stored: dict[str, Any]) -> None:
        self.fault_id: int = stored["id"]
        own = {name: value for name, value in stored.items() if name not in COUNTS}
        self.rule = msgspec.convert(own, FaultRule)
        self._is_over = self.rule.count is not None and stored["fired"] >= self.rule.count

    def matches(self, target: FaultTarget) -> bool:
        """Return True if the rule is for such requests."""
        rule, (service, action, resources, account_id, region, face, endpoint) = self.rule, target
        if self._is_over or (endpoint is None) != (rule.endpoint is None):
            return False
        name = rule.topic if service == "sns" else rule.queue
        other = rule.queue if service == "sns" else rule.topic
        plain = action.removesuffix(_BATCH) if rule.kind in _OF_MESSAGES else action
        return (
            other is None
            and (name is None or name in resources)
            and rule.service in (None, service)
            and rule.operation in (None, plain)
            and rule.face in (None, face)
            and rule.account in (None, account_id)
            and rule.region in (None, region)
            and (rule.endpoint is None or (endpoint or "").startswith(rule.endpoint))
        )

    async def take_turn(self, engine: Engine) -> Random | None:
        """Count a match. Return the generator of its further draws if the rule fires."""
        async with engine.database.transaction() as tx:
            stored = await stored_faults.read(tx, locks=True)
            own = next((one for one in stored.rules if one["id"] == self.fault_id), None)
            if own is None or (self.rule.count is not None and own["fired"] >= self.rule.count):
                self._is_over = True
                return None
            own["matched"] += 1
            draws = Random(f"{self.rule.seed}:{own['matched']}")
            fires = draws.random() < self.rule.probability
            own["fired"] += fires
            await stored_faults.write(tx, stored, notifies=False)
        return draws if fires else None


class FaultEffects(NamedTuple):
    """The effects of a rule on messages of the current request."""

    kind: Kind
    delay_ms: int
    jitter_ms: int
    draws: Random


CURRENT: ContextVar[FaultEffects | None] = ContextVar("queuegate_fault", default=None)
"""The effects on the request of the current task."""


class Faults:
    """The rules of this process."""

    def __init__(self, engine: Engine, rules: Sequence[dict[str, Any]]) -> None:
        self._engine = engine
        self._rules = [LiveFault(one) for one in rules]
        self.ends: asyncio.TimerHandle | None = None
        """The look for rules that end."""

    def __len__(self) -> int:
        return len(self._rules)

    async def meet(self, target: FaultTarget) -> Ending:
        """Apply the rules to a request: sleep or raise InjectedFault. Return how its answer ends.

        Latencies of rules that fire add up. The first other rule that fires is the last one.
        """
        milliseconds, found = 0.0, None
        for one in self._rules:
            draws = await one.take_turn(self._engine) if one.matches(target) else None
            if draws is None:
                continue
            rule = one.rule
            jitter_ms = 0 if rule.kind == "late" else rule.jitter_ms
            milliseconds += rule.latency_ms + draws.random() * jitter_ms
            if rule.kind not in (None, "latency"):
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
                CURRENT.set(FaultEffects(rule.kind, rule.delay_ms or 0, rule.jitter_ms, draws))
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
        due: list[int] = []
        later: list[NewMessage] = []
        for message in messages:
            seconds = message.delay_seconds
            due.append((queue.delay_seconds if seconds is None else seconds) * 1000)
            due[-1] += effects.delay_ms + int(effects.draws.random() * effects.jitter_ms)
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

    def _effects_on(self, queue: Queue, kind: Kind) -> FaultEffects | None:
        effects = CURRENT.get()
        is_met = effects is not None and effects.kind == kind and not queue.kind.has_groups
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
            effects.draws.shuffle(received)
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
    removes: Callable[[dict[str, Any]], bool] = lambda _: False,
) -> tuple[list[dict[str, Any]], int]:
    """Remove and add rules, and return when every process uses them: the added ones, and how many
    were removed. Raises BadFault, and changes nothing, for too many."""
    engine.wakeups.expect_to_know(stored_faults.NO_KEY)
    async with engine.database.transaction() as tx:
        stored = await stored_faults.read(tx, locks=True)
        kept = [one for one in stored.rules if not removes(one)]
        if len(kept) + len(adds) > MOST_RULES:
            raise BadFault(f"There are at most {MOST_RULES} rules: remove some first.")
        added = [
            {
                "id": number,
                **msgspec.to_builtins(rule),
                "matched": 0,
                "fired": 0,
                "until": None if rule.ttl_seconds is None else stored.now + rule.ttl_seconds,
            }
            for number, rule in enumerate(adds, stored.last + 1)
        ]
        changed = stored._replace(rules=kept + added, last=stored.last + len(adds))
        await stored_faults.write(tx, changed)
    await reload(engine)
    await engine.wakeups.wait_for_key(stored_faults.NO_KEY)
    return added, len(stored.rules) - len(kept)


async def reload(engine: Engine) -> None:
    """Read the rules of all processes, and use them from now on."""
    async with engine.faults_reading:
        async with engine.database.transaction() as tx:
            stored = await stored_faults.read(tx)
        use(engine, stored)


def use(engine: Engine, stored: stored_faults.StoredFaults) -> None:
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
    ends = [one["until"] - stored.now for one in rules if one["until"] is not None]
    if ends:
        # As if another process had changed the rules.
        notified = engine.wakeups.on["faults_changed"]
        loop = asyncio.get_running_loop()
        engine.faults.ends = loop.call_later(min(ends) + 0.01, notified)
