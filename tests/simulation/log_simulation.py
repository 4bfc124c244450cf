"""Random clients of a log, crashes and clock jumps, checked against the model."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta

from queuegate.gateway.operations.logs import consumer_groups
from queuegate.gateway.operations.logs.log_records import delete_record
from queuegate.gateway.operations.logs.logs import change_log, create_log, purge_log
from queuegate.gateway.operations.runtime.engine import Engine
from queuegate.storage.model import (
    ConsumerGroupSettings,
    LogRetention,
    ReceiptAction,
    RecordOutcome,
    StoredLog,
)
from queuegate.storage.storage_errors import Rejected
from tests.simulation.log_calls import (
    Answer,
    Beat,
    Call,
    Client,
    Collect,
    Fetch,
    Leave,
    Publish,
    Requeue,
    Seek,
    Settle,
)
from tests.simulation.log_model import ModelGroup, ModelLog, Receipt
from tests.simulation.log_world import Seen, read_log
from tests.simulation.model import Impossible
from tests.simulation.stepping import Stepping
from tests.simulation.world import CALLER, World

LOG = "orders"
_KEYS = "abc"
_NAMES = ("anna", "bert", "carl")
_YOUNG = 8
"""Of receipts and clients: most steps are about one of the last so many."""
_SETTINGS = {
    "strict": ConsumerGroupSettings(batch_size=1, max_attempts=2, visibility_timeout_seconds=20),
    "loose": ConsumerGroupSettings(batch_size=4, max_attempts=3, visibility_timeout_seconds=45),
}
_RETENTION = LogRetention(retain_consumed_seconds=60)
_DOES = [
    (30, ReceiptAction.ACK),
    (10, ReceiptAction.NACK),
    (3, ReceiptAction.POSTPONE),
    (4, ReceiptAction.EXTEND),
    (9, ReceiptAction.REJECT),
    (4, ReceiptAction.RELEASE),
]


class LogSimulation(Stepping):
    """One run. The same seed makes the same steps."""

    steps = (
        (14, "publish"),
        (12, "beat"),
        (4, "join"),
        (26, "fetch"),
        (8, "fetch_any"),
        (24, "settle"),
        (10, "race"),
        (2, "leave"),
        (8, "jump"),
        (5, "count"),
        (5, "collect"),
        (7, "requeue"),
        (2, "seek"),
        (2, "commit"),
        (1, "delete_record"),
        (1, "purge"),
        (1, "set_retention"),
        (1, "crash"),
        (5, "crash_during"),
    )

    def __init__(self, world: World, seed: int) -> None:
        super().__init__(world, seed)
        self.orders: StoredLog
        self.model = ModelLog(_RETENTION)
        self.ids: list[int] = []
        self.clients: list[Client] = []
        self.receipts: dict[str, list[Receipt]] = {name: [] for name in _SETTINGS}

    async def run(self, steps: int) -> None:
        """Raises Impossible, or whatever else should not happen."""
        await self._make()
        for number in range(steps):
            name = self.choose_step(number)
            self.log.append(f"{number} {name}")
            step: Callable[[Engine], Awaitable[None]] = getattr(self, "_" + name)
            await step(self.random.choice(self.world.engines))
            self.world.clock.pass_seconds(self.random.choice((0.001, 0.01, 0.5, 1.5)))
        await self._drain()

    async def _make(self) -> None:
        engine = self.world.engines[0]
        self.orders = (await create_log(engine, CALLER, LOG, None, _RETENTION)).log
        for name, settings in _SETTINGS.items():
            group = (await consumer_groups.make_group(engine, self.orders, name, settings)).group
            self.model.groups[name] = ModelGroup(name, settings)
            self.clients += [Client(group, subscriber) for subscriber in _NAMES]
            self.log.append("make")
            await self._do(engine, Beat(self.world.clock, self.orders, self.clients[-1]))

    # Doing something, and comparing

    async def _seen(self) -> Seen:
        seen = await read_log(self.world.observer, LOG)
        self.ids = seen.ids
        return seen

    async def _do(self, engine: Engine, call: Call) -> Answer:
        self.note(f"{call}")
        answer = await _answer(call.call(engine))
        self.note(f"{answer}")
        seen = await self._seen()
        if isinstance(call, Leave):
            # Who is dead may have been removed before.
            self._choose(call.crashed(self.model, seen), seen)
        else:
            call.happened(self.model, answer, seen)
            self._choose([self.model], seen)
        return answer

    def _choose(self, models: Sequence[ModelLog], seen: Seen) -> None:
        """Go on with whichever of them is what is there."""
        seen.check_leases(self.model)
        different = [(seen.differences(model), model) for model in models]
        self.model = next((model for text, model in different if not text), self.model)
        if all(text for text, _ in different):
            raise Impossible(different[0][0])
        self.model.letters = seen.letters

    def _client(self) -> Client:
        """Mostly one of the last who joined."""
        young = {(one.group.name, one.name): one for one in self.clients}
        if self.random.random() < 0.9:
            return self.random.choice([*young.values()])
        return self.random.choice(self.clients[-_YOUNG:])

    # Steps

    def _new_publish(self) -> Publish:
        some = []
        for _ in range(self.random.choice((1, 1, 2, 5))):
            record_id = self.random.choice((None, None, str(self.random.randint(1, 15))))
            some.append((self.random.choice(_KEYS), self.new_body(), record_id))
        return Publish(self.world.clock, self.orders, some)

    def _new_fetch(self) -> Fetch:
        """Of what its subscriber holds, mostly."""
        client = self._client()
        held = self.model.groups[client.group.name].held_by(client.name)
        if not held or self.random.random() < 0.2:
            held = [*range(len(self.ids))]
        numbers = self.random.sample(held, min(len(held), self.random.randint(1, 4)))
        ids = [self.ids[number] for number in numbers]
        fetch = Fetch(
            self.world.clock, self.orders, client, ids, self.random.choice((1, 2, 5, 100))
        )
        fetch.numbers = numbers
        return fetch

    def _new_settle(self) -> Settle:
        client = self._client()
        receipts = self.receipts[client.group.name]
        some = receipts[-_YOUNG:] if self.random.random() < 0.9 else receipts
        todo = []
        for receipt in self.random.sample(some, min(len(some), self.random.randint(1, 3))):
            [(_, do)] = self.random.choices(_DOES, [weight for weight, _ in _DOES])
            delay = self.random.choice((0, 2, 20, 100))
            is_default = do is ReceiptAction.NACK and self.random.random() < 0.5
            todo.append((receipt, do, None if is_default else delay))
        return Settle(self.world.clock, self.orders, client.group, todo, self.ids)

    async def _publish(self, engine: Engine) -> None:
        await self._do(engine, self._new_publish())

    async def _beat(self, engine: Engine) -> None:
        await self._do(engine, Beat(self.world.clock, self.orders, self._client()))

    async def _join(self, engine: Engine) -> None:
        """Another process with the name of one that may be live."""
        one = self._client()
        self.clients.append(Client(one.group, one.name))
        await self._do(engine, Beat(self.world.clock, self.orders, self.clients[-1]))

    async def _fetch(self, engine: Engine) -> None:
        fetch = self._new_fetch()
        if not _is_too_early(fetch):
            self._keep(fetch, await self._do(engine, fetch))

    def _keep(self, fetch: Fetch, answer: Answer) -> None:
        self.receipts[fetch.client.group.name] += _receipts(answer)

    async def _fetch_any(self, engine: Engine) -> None:
        """Fetch up to three times until records come: two fetches may follow hints."""
        client = self._client()
        if client.session is None:
            return
        for _ in range(3):
            fetch = Fetch(self.world.clock, self.orders, client, None, 1_000)
            answer = await self._do(engine, fetch)
            self._keep(fetch, answer)
            if _receipts(answer) or not self._left(client, fetch):
                return
        raise Impossible(f"nothing, although there is {self._left(client, fetch)}")

    def _left(self, client: Client, fetch: Fetch) -> list[tuple[int, int]]:
        """Return what the model would give the fetch."""
        group = client.in_model(self.model)
        assert client.session is not None
        is_mine = group.is_holder(client.name, client.session)
        if not is_mine or not group.is_live(client.name, fetch.now):
            return []
        return self.model.left(group, group.held_by(client.name), fetch.now_ms)

    async def _settle(self, engine: Engine) -> None:
        await self._do(engine, self._new_settle())

    async def _leave(self, engine: Engine) -> None:
        client = self._client()
        if client.session is not None:
            releases = self.random.random() < 0.5
            await self._do(engine, Leave(self.world.clock, self.orders, client, releases=releases))

    async def _jump(self, engine: Engine) -> None:
        seconds = self.random.choice((3.3, 11.7, 31.7, 65.2, 301.4))
        self.note(f"{seconds} s")
        self.world.clock.pass_seconds(seconds)
        self.world.forget_marks()

    async def _count(self, engine: Engine) -> None:
        """Compare the progress that a group reports with the model."""
        group = self._client().group
        model = self.model.groups[group.name]
        now = self.world.clock.instant_now
        now_ms = round(now.timestamp() * 1000)
        states, _ = await consumer_groups.position_states(
            engine, self.orders, group, after=-1, limit=100
        )
        progress, live = await consumer_groups.progress_of(engine, self.orders, group)
        lag = in_flight = 0
        for state, partition in zip(states, self.model.partitions, strict=True):
            position = model.positions.get(state.number)
            watermark, out = partition.start - 1, 0
            if position is not None:
                watermark = max(watermark, position.watermark)
                out = sum(
                    one.delivery > 0 and one.visible_at > now_ms and offset >= partition.start
                    for offset, one in position.states.items()
                )
            lag += partition.end - 1 - watermark
            in_flight += out
            if (state.watermark, state.in_flight) != (watermark, out):
                raise Impossible(f"{group.name} is at {state}, not {watermark} with {out}")
        if (progress.lag, progress.in_flight) != (lag, in_flight):
            raise Impossible(f"{group.name} has {progress}, not {lag} with {in_flight}")
        names = {one.name for one in live}
        if names != {name for name in model.subscribers if model.is_live(name, now)}:
            raise Impossible(f"{group.name} has {names} live, not {model.subscribers}")

    async def _collect(self, engine: Engine) -> None:
        await self._do(engine, Collect(self.world.clock))

    async def _requeue(self, engine: Engine) -> None:
        dead = await self._dead_letters(engine)
        if dead is not None:
            group = self.random.choice((None, *_SETTINGS))
            most = self.random.choice((1, 3, 100))
            await self._do(engine, Requeue(self.world.clock, self.orders, dead, group, most))

    async def _dead_letters(self, engine: Engine) -> StoredLog | None:
        return await engine.logs.find(CALLER.account_id, CALLER.region, f"{LOG}_dlq")

    async def _seek(self, engine: Engine) -> None:
        now = self.world.clock.instant_now
        ago = now - timedelta(seconds=self.random.choice((1, 10, 100)))
        to = self.random.choice(
            (consumer_groups.EARLIEST, consumer_groups.LATEST, ago, self._offsets())
        )
        await self._do(engine, Seek(self.world.clock, self.orders, self._client().group, to))

    async def _commit(self, engine: Engine) -> None:
        group, to = self._client().group, self._offsets()
        await self._do(engine, Seek(self.world.clock, self.orders, group, to, spares_held=True))

    def _offsets(self) -> dict[int, int]:
        some = self.random.sample(range(len(self.ids)), min(len(self.ids), 2))
        return {
            number: self.random.randint(0, self.model.partitions[number].end + 2) for number in some
        }

    async def _delete_record(self, engine: Engine) -> None:
        places = [
            (number, offset)
            for number, one in enumerate(self.model.partitions)
            for offset in one.records
        ]
        if places:
            number, offset = self.random.choice(places)
            self.note(f"{number} {offset}")
            await delete_record(engine, self.orders, number, offset)
            del self.model.partitions[number].records[offset]
            self._choose([self.model], await self._seen())

    async def _purge(self, engine: Engine) -> None:
        await purge_log(engine, self.orders)
        for partition in self.model.partitions:
            partition.begin_at(partition.end)
        self._choose([self.model], await self._seen())

    async def _set_retention(self, engine: Engine) -> None:
        settings = _RETENTION._replace(max_age_seconds=self.random.choice((None, None, 200)))
        self.note(f"{settings}")
        await change_log(engine, self.orders, lambda _: settings)
        self.model.settings = settings

    # Several at a time, and crashes

    async def _race(self, engine: Engine) -> None:
        """Two calls at a time, in two processes: what comes of it is as if one had been first."""
        calls: list[Call] = [self._new_fetch(), self._new_settle()]
        calls[self.random.randint(0, 1)] = self.random.choice(
            (self._new_fetch, self._new_settle, self._new_publish)
        )()
        self.note(f"{calls[0]} and {calls[1]}")
        if any(_is_too_early(one) for one in calls):
            return
        engines = self.world.engines
        answers = await asyncio.gather(
            *[_answer(one.call(by)) for one, by in zip(calls, engines, strict=True)]
        )
        self.note(f"{answers}")
        both = [*zip(calls, answers, strict=True)]
        seen = await self._seen()
        models, why = [], []
        for order in (both, both[::-1]):
            model = self.model.copy()
            try:
                for call, answer in order:
                    call.happened(model, answer, seen)
            except Impossible as impossible:
                why.append(f"{impossible}")
            else:
                models.append(model)
        if not models:
            raise Impossible(" and ".join(why))
        self._choose(models, seen)
        for call, answer in both:
            if isinstance(call, Fetch):
                self._keep(call, answer)

    async def _crash(self, engine: Engine) -> None:
        await self.world.crash()
        self._choose([self.model], await self._seen())

    async def _crash_during(self, engine: Engine) -> None:
        """Crash during a call: an answered call is done, an unanswered one wholly or not at all."""
        make = self.random.choice(
            (self._new_publish, self._new_fetch, self._new_settle, self._new_beat)
        )
        call = make()
        if _is_too_early(call):
            return
        turns = self.turns()
        self.note(f"{call} after {turns}")
        answer = await self.world.crash_during(turns, call.call(engine))
        seen = await self._seen()
        self.note(f"{answer}")
        if answer is None:
            self._choose(call.crashed(self.model, seen), seen)
        else:
            call.happened(self.model, answer, seen)
            self._choose([self.model], seen)
            if isinstance(call, Fetch):
                self._keep(call, answer)

    def _new_beat(self) -> Beat:
        return Beat(self.world.clock, self.orders, self._client())

    # The end

    async def _drain(self) -> None:
        """In the end all that a group has not done comes, and nothing else."""
        for name in _SETTINGS:
            group = next(one.group for one in self.clients if one.group.name == name)
            client = Client(group, "last")
            for _ in range(10 * sum(len(one.records) for one in self.model.partitions) + 10):
                self.log.append(f"drain {name}")
                self.world.clock.pass_seconds(301)
                engine = self.random.choice(self.world.engines)
                await self._do(engine, Beat(self.world.clock, self.orders, client))
                await self._finish_all(engine, client)
                if not self._pending(name):
                    break
            else:
                raise Impossible(f"{name} never gets {self._pending(name)}")

    async def _finish_all(self, engine: Engine, client: Client) -> None:
        while True:
            fetch = Fetch(self.world.clock, self.orders, client, None, 1_000)
            some = _receipts(await self._do(engine, fetch))
            if not some and not self._left(client, fetch):
                return
            todo = [(receipt, ReceiptAction.ACK, None) for receipt in some]
            call = Settle(self.world.clock, self.orders, client.group, todo, self.ids)
            if some and set(await self._do(engine, call)) != {RecordOutcome.DONE}:
                raise Impossible("a receipt that was just given out does not count")

    def _pending(self, name: str) -> list[tuple[int, int]]:
        """Offsets that a group has not done, by partition."""
        positions = self.model.groups[name].positions
        return [
            (number, offset)
            for number, partition in enumerate(self.model.partitions)
            for offset in range(
                max(positions[number].watermark + 1, partition.start), partition.end
            )
            if offset not in positions[number].states
            or not positions[number].states[offset].is_done
        ]


async def _answer(call: Awaitable[Answer]) -> Answer:
    """A refusal is one, too."""
    try:
        return await call
    except Rejected as refusal:
        return refusal


def _receipts(answer: Answer) -> list[Receipt]:
    """Of what a fetch gave."""
    if not isinstance(answer, list):
        return []
    return [Receipt(one.number, one.record.offset, one.delivery) for one in answer]


def _is_too_early(call: Call) -> bool:
    """For a fetch of partitions: there is none yet, or its subscriber has not joined."""
    return isinstance(call, Fetch) and (call.client.session is None or call.ids == [])
