"""Application and export of seeds, which name the resources that accounts have.

A seed is applied in one transaction: all of it, or after any mistake nothing. The faces check and
write each resource, so their rules and texts are those of the API.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field
from msgspec.structs import replace

from queuegate.gateway.process.assembly import atomic_engine
from queuegate.gateway.seeding.resource_kinds import (
    KINDS,
    PARENTS,
    PRUNED,
    AccountId,
    CallRefused,
    Present,
    Region,
    SeedCalls,
    SeedResource,
    Values,
)
from queuegate.protocol.urls import without_password

if TYPE_CHECKING:
    from queuegate.gateway.configuration.settings import Settings
    from queuegate.gateway.operations.runtime.engine import Engine

_OWN_DEAD_LETTERS = "-dead-letters"
"""End of the names of dead-letter queues that the gateway makes for channels."""
_REDRIVE = "RedrivePolicy"


class Seed(Struct):
    """A parsed seed."""

    resources: list[SeedResource] = []
    places: list[tuple[AccountId, Region]] = []
    """Accounts and regions that it is about, also without resources."""
    prune: bool = False
    """Delete queues, topics, subscriptions, schedules and logs of these places that it does not
    name."""
    dry_run: bool = False
    """Change nothing."""


class SeedFault(Struct):
    """A mistake."""

    resource: int
    """The index of the resource."""
    field: str
    """The field of it, or an empty text."""
    text: str


class SeedResult(Struct):
    """The outcome of an application. With faults, nothing was changed."""

    changes: list[str] = field(default_factory=list)
    """A line for each changed resource."""
    faults: list[SeedFault] = field(default_factory=list)
    secrets: dict[int, str] = field(default_factory=dict)
    """Secrets of new keys, by index of their resources."""


class _Undone(Exception):
    """Rolls a transaction back."""


async def apply_seed(
    settings: Settings,
    engine: Engine,
    seed: Seed,
    links_url: str = "",
    *,
    is_administrator: bool = True,
) -> SeedResult:
    """Create and change what differs from a seed in a running engine, in one transaction.

    Attributes that it does not name stay. Messages are sent to queues that it creates. Seeds
    of several processes wait for each other. Raises Unavailable.
    """
    result = SeedResult()
    if not (seed.resources or seed.prune):
        return result
    try:
        async with atomic_engine(settings, engine) as atomic:
            calls = SeedCalls(atomic, links_url, is_administrator=is_administrator)
            await _Application(calls, seed, result).run()
            if result.faults or seed.dry_run:
                raise _Undone
    except _Undone:
        result.secrets.clear()
    return result


class _Application:
    """One application of a seed."""

    def __init__(self, calls: SeedCalls, seed: Seed, result: SeedResult) -> None:
        self._calls = calls
        self._kinds = {name: kind(calls) for name, kind in KINDS.items()}
        self._seed = seed
        self._result = result
        self._created: set[int] = set()

    async def run(self) -> None:
        """Create dead-letter queues before redrive policies, which may form a cycle."""
        queues = {n: one for n, one in enumerate(self._seed.resources) if one.kind == "queue"}
        names = [(one.account_id, one.region, one.name) for one in queues.values()]
        # PostgreSQL has no texts with NUL.
        await self._calls.engine.queues.find_many(name for name in names if "\0" not in name[2])
        for kind in KINDS:
            for number, one in enumerate(self._seed.resources):
                if one.kind == kind:
                    later = _REDRIVE if number in queues else None
                    values = {key: value for key, value in one.values.items() if key != later}
                    await self._put(number, one, values)
            for number, one in queues.items() if kind == "queue" else ():
                if _REDRIVE in one.values:
                    await self._put(number, one, {_REDRIVE: one.values[_REDRIVE]})
        for number, one in queues.items():
            if one.messages and number in self._created:
                await self._send(number, one)
        if self._seed.prune and not self._result.faults:
            await self._prune()

    @asynccontextmanager
    async def _attempt(self) -> AsyncIterator[None]:
        """Roll back what the block did if it raises."""
        try:
            async with self._calls.engine.database.transaction():
                yield
        except BaseException:
            self._calls.forget()
            raise

    async def _present(self, one: SeedResource) -> Present:
        self._calls.act_as(one.account_id, one.region)
        if "\0" in one.name:
            return None
        found = [each async for each in self._kinds[one.kind].stored(one)]
        return found[0] if found else None

    async def _put(self, number: int, one: SeedResource, values: Values) -> None:
        """Create a resource, or change what differs. A change after which it reads as before is
        undone: the API writes some values in another form."""
        present = await self._present(one)
        if present is not None and covers(present.values, values) and not one.replaces:
            return
        try:
            async with self._attempt():
                secret = await self._kinds[one.kind].write(one, values, present)
                if present is not None and not secret and await self._present(one) == present:
                    raise _Undone
        except _Undone:
            return
        except CallRefused as refusal:
            await self._find_faults(number, one, values, present, refusal)
            return
        if secret:
            self._result.secrets[number] = secret
        if present is None:
            self._created.add(number)
        if present is None or number not in self._created:
            verb = "created" if present is None else "changed"
            self._note(f"{verb} {one.kind} {without_password(one.name)}")

    def _note(self, line: str) -> None:
        if line not in self._result.changes[-1:]:
            self._result.changes.append(line)

    async def _find_faults(
        self, number: int, one: SeedResource, values: Values, present: Present, refusal: CallRefused
    ) -> None:
        """Note the fields without which this refusal does not happen, and write the others: later
        resources may refer to this one."""
        kind = self._kinds[one.kind]
        left = {name: value for name, value in values.items() if name not in PARENTS}
        found: CallRefused | None = refusal
        while found is not None:
            text = str(found)
            # Most texts have the name of the field.
            for name in sorted(left, key=lambda name: name.lower() not in text.lower()):
                rest = {key: value for key, value in left.items() if key != name}
                if name in kind.stand_ins:
                    rest[name] = kind.stand_ins[name]
                without = None
                try:
                    async with self._attempt():
                        await kind.write(one, rest, present)
                except CallRefused as another:
                    without = another
                if str(without) != text:
                    self._fault(number, name, text)
                    left, found = rest, without
                    break
            else:
                self._fault(number, "", text)
                return
        self._created.add(number)

    def _fault(self, number: int, name: str, text: str) -> None:
        self._result.faults.append(SeedFault(number, name, text))

    async def _send(self, number: int, one: SeedResource) -> None:
        self._calls.act_as(one.account_id, one.region)
        at = {"QueueUrl": self._calls.queue_url(one.name)}
        for place, message in enumerate(one.messages):
            try:
                await self._calls.aws("sqs", "SendMessage", **{**message, **at})
            except CallRefused as refusal:
                self._fault(number, f"messages.{place}", str(refusal))
        self._note(f"sent {len(one.messages)} to queue {one.name}")

    async def _prune(self) -> None:
        named = {one.identity for one in self._seed.resources}
        for one in self._seed.resources:
            if one.kind == "channel":
                for end in ("", _OWN_DEAD_LETTERS):
                    named.add(replace(one, kind="queue", name=one.name + end).identity)
        for place in sorted(set(self._seed.places)):
            self._calls.act_as(*place)
            for kind in PRUNED:
                for one in [one async for one in self._kinds[kind].stored(None)]:
                    if one.identity not in named:
                        await self._kinds[kind].delete(one)
                        self._note(f"deleted {kind} {without_password(one.name)}")


def covers(present: Any, wanted: Any) -> bool:
    """Return True if all members of a structure are present."""
    if isinstance(wanted, dict) and isinstance(present, dict):
        return all(name in present and covers(present[name], wanted[name]) for name in wanted)
    return bool(present == wanted)


async def export_account(engine: Engine, account_id: str, region: str) -> list[SeedResource]:
    """Return the resources of an account in a region, without messages and secrets, and without
    values that are defaults."""
    resources: list[SeedResource] = []
    calls = SeedCalls(engine, "", is_administrator=True)
    calls.act_as(account_id, region)
    for kind in KINDS.values():
        async for one in kind(calls).stored(None):
            one.name, one.handle = without_password(one.name), ""
            one.values = {
                name: value
                for name, value in one.values.items()
                if value not in ("", {}, False, kind.defaults.get(name, ""))
            }
            resources.append(one)
    return resources
