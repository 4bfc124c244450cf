"""The client of an event loop: publishes, subscribes, and administers."""

from __future__ import annotations

import asyncio
import itertools
import secrets
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from datetime import datetime
from types import TracebackType
from typing import Any, Literal, Self, Unpack

from queuegate.log.calls import Calls, Credentials, encoded
from queuegate.log.records import (
    Group,
    GroupSettings,
    Log,
    LogSettings,
    NewGroup,
    NewRecord,
    Partition,
    Progress,
    Published,
    Record,
)
from queuegate.log.subscriptions import Options, Subscription, wire

_AT_ONCE = 1_000
_BYTES_AT_ONCE = 6_000_000
_PAGE = 1_000
_SHORTEST_PAGE = 100

Position = Literal["earliest", "latest"] | datetime


class LogClient:
    """Logs of a gateway, or of several on one database: another one is asked when one is away.

    ``api_key`` is one of `queuegate keys`; without one, ``account`` and ``region`` say whose logs.
    What is asked for is asked again for ``patience_seconds`` while nobody answers; nothing is
    done twice by that. To be closed, or used as a context manager.
    """

    def __init__(
        self,
        endpoint_url: str | Sequence[str],
        *,
        api_key: str | None = None,
        account: str | None = None,
        region: str | None = None,
        patience_seconds: float = 30.0,
    ) -> None:
        urls = [endpoint_url] if isinstance(endpoint_url, str) else list(endpoint_url)
        self._calls = Calls(urls, Credentials(api_key, account, region), patience_seconds)
        self._subscriptions: list[Subscription] = []
        self._own_ids = map(f"{secrets.token_hex(12)}-{{}}".format, itertools.count(1))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close(None if error is None else 0.0)

    async def close(self, seconds: float | None = None) -> None:
        """Close all subscriptions, as `Subscription.close`, and the connections."""
        try:
            await asyncio.gather(*(one.close(seconds) for one in self._subscriptions))
        finally:
            await self._calls.close()

    async def publish(
        self,
        log: str,
        payload: str | bytes,
        *,
        key: str = "",
        id: str | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> Published:
        """Append a record to a log, which is made if it is not there. On disk when this returns.

        ``id``: published again under the same key it is no second record, also after an error of
        which nobody knows what it left behind. Without one, repeated requests make no second one.
        """
        [published] = await self.publish_many(log, [NewRecord(payload, key, id, metadata)])
        return published

    async def publish_many(self, log: str, records: Iterable[NewRecord]) -> list[Published]:
        """Append records in this order, up to a thousand (and 6 MB) with each request: all of
        these or none."""
        published: list[Published] = []
        for part in self._parts(records):
            body = b'{"records":[%b]}' % b",".join(sent for *_, sent in part)
            answer = await self._calls.ask("POST", log, "records", body=body)
            for (record, own_id, _), found in zip(part, answer.body["records"], strict=True):
                # A duplicate of an id that we made is a request of ours that was repeated.
                duplicate = bool(record.id and found.get("duplicate"))
                published.append(Published.of(found, id=own_id, duplicate=duplicate))
        return published

    def _parts(self, records: Iterable[NewRecord]) -> Iterable[list[tuple[NewRecord, str, bytes]]]:
        """Records, their ids, and both as they are sent: how long that is depends on what is in
        it, for quotes and other letters than those of ASCII are escaped."""
        part: list[tuple[NewRecord, str, bytes]] = []
        size = 0
        for record in records:
            members = record.members(next(self._own_ids))
            sent = encoded(members)
            if part and (len(part) == _AT_ONCE or size + len(sent) > _BYTES_AT_ONCE):
                yield part
                part, size = [], 0
            part.append((record, members["id"], sent))
            size += len(sent) + 1
        if part:
            yield part

    def subscribe(
        self,
        log: str,
        group: str,
        *,
        subscriber: str | None = None,
        most_in_hand: int = 100,
        auto_extend: bool = False,
        shutdown_seconds: float = 10.0,
        **settings: Unpack[NewGroup],
    ) -> Subscription:
        """Deliveries to one more subscriber of a group: ``async for delivery in subscribe(...)``.

        ``subscriber`` is its name, which nobody else may have; None: one of its own.
        ``most_in_hand``: how many it has at once that are not settled. ``auto_extend``: deliveries
        stay its consumer's however long that takes, as long as this process lives.
        ``shutdown_seconds``: how long `close` waits for what is in hand.
        ``settings`` are the group's, which is made with them; one that is there has to have them.
        """
        options = Options(subscriber, most_in_hand, auto_extend, shutdown_seconds, settings)
        subscription = Subscription(self._calls, log, group, options)
        self._subscriptions = [one for one in self._subscriptions if not one.is_closed]
        self._subscriptions.append(subscription)
        return subscription

    async def create_log(
        self, log: str, *, partitions: int | None = None, **settings: Unpack[LogSettings]
    ) -> Log:
        """Make a log: with so many partitions, or one for each key. The same again is no error."""
        body = {"log": log, **settings}
        if partitions is not None:
            body["partitions"] = partitions
        return Log.of((await self._calls.ask("POST", body=body)).body)

    async def change_log(self, log: str, **settings: Unpack[LogSettings]) -> Log:
        """Set what is given."""
        return Log.of((await self._calls.ask("PATCH", log, body=settings)).body)

    async def log(self, log: str) -> Log:
        """What is known of a log."""
        return Log.of((await self._calls.ask("GET", log)).body)

    async def logs(self, prefix: str | None = None) -> list[Log]:
        """All logs by name, or those that begin so."""
        found: list[Log] = []
        while True:
            after = found[-1].log if found else None
            params = {"prefix": prefix, "max": _SHORTEST_PAGE, "after": after}
            page = (await self._calls.ask("GET", params=params)).body["logs"]
            found += map(Log.of, page)
            if len(page) < _SHORTEST_PAGE:
                return found

    async def delete_log(self, log: str) -> None:
        """Delete a log with its records and groups, if there is one. Its dead letters stay."""
        await self._calls.ask("DELETE", log)

    async def purge_log(self, log: str) -> int:
        """Delete all records; how many there were. Groups stay, and offsets go on."""
        count: int = (await self._calls.ask("POST", log, "purge")).body["records"]
        return count

    async def partitions(self, log: str) -> list[Partition]:
        """All partitions by number."""
        return [Partition.of(one) async for one in self._pages(log, "partitions")]

    async def records(
        self, log: str, partition: int, start: int = 0, most: int = 100
    ) -> list[Record]:
        """Records of a partition from an offset on, as they are: no group is concerned."""
        params = {"partition": partition, "from": start, "max": most}
        answer = await self._calls.ask("GET", log, "records", params=params)
        return [Record.of(one) for one in answer.body["records"]]

    async def delete_record(self, log: str, partition: int, offset: int) -> None:
        """Delete one record for all groups, if it is there."""
        await self._calls.ask("DELETE", log, "records", partition, offset)

    async def create_group(self, log: str, group: str, **settings: Unpack[NewGroup]) -> Group:
        """Make a group. The same again is no error; other settings are a Conflict."""
        parts = (log, "groups", group)
        return Group.of((await self._calls.ask("PUT", *parts, body=wire(settings))).body)

    async def change_group(self, log: str, group: str, **settings: Unpack[GroupSettings]) -> Group:
        """Set what is given."""
        parts = (log, "groups", group)
        return Group.of((await self._calls.ask("PATCH", *parts, body=settings)).body)

    async def groups(self, log: str) -> list[Group]:
        """All groups of a log."""
        answer = await self._calls.ask("GET", log, "groups")
        return [Group.of(one) for one in answer.body["groups"]]

    async def group(self, log: str, group: str) -> Group:
        """A group with its lag."""
        return Group.of((await self._calls.ask("GET", log, "groups", group)).body)

    async def progress(self, log: str, group: str) -> list[Progress]:
        """How far a group is, by partition."""
        pages = self._pages(log, "groups", group, "partitions")
        return [Progress.of(one) async for one in pages]

    async def delete_group(self, log: str, group: str) -> None:
        """Delete a group, if there is one. The log stays as it is."""
        await self._calls.ask("DELETE", log, "groups", group)

    async def seek(self, log: str, group: str, to: Position | Mapping[int, int]) -> None:
        """Let a group go on elsewhere: all partitions at their first or next record or at a time,
        or some, by number, at an offset. What is out is void."""
        body: dict[str, Any]
        if isinstance(to, Mapping):
            body = {"offsets": [{"partition": p, "offset": offset} for p, offset in to.items()]}
        else:
            body = wire({"to": to})
        await self._calls.ask("POST", log, "groups", group, "seek", body=body)

    async def dead_letters(
        self, log: str, group: str | None = None, most: int = 100
    ) -> list[Record]:
        """The oldest dead letters of a log, or of one group of it."""
        params = {"group": group, "max": most}
        answer = await self._calls.ask("GET", log, "dead-letters", params=params)
        return [Record.of(one) for one in answer.body["records"]]

    async def requeue(self, log: str, places: Sequence[tuple[int, int]] | None = None) -> int:
        """Publish dead letters again, for the group that gave them up: these (partition, offset),
        or all; how many there were."""
        body: dict[str, Any] = {"all": True}
        if places is not None:
            body = {"offsets": [{"partition": p, "offset": offset} for p, offset in places]}
        count = 0
        while True:
            answer = await self._calls.ask("POST", log, "dead-letters", "requeue", body=body)
            requeued: int = answer.body["requeued"]
            count += requeued
            if not answer.body["has_more"] or not requeued:
                return count

    async def purge_dead_letters(self, log: str) -> int:
        """Delete all dead letters of a log; how many there were."""
        answer = await self._calls.ask("POST", log, "dead-letters", "purge")
        count: int = answer.body["records"]
        return count

    async def _pages(self, *parts: str) -> AsyncIterator[dict[str, Any]]:
        after: int | None = None
        while True:
            params = {"max": _PAGE, "after": after}
            page = (await self._calls.ask("GET", *parts, params=params)).body["partitions"]
            for one in page:
                yield one
            if len(page) < _PAGE:
                return
            after = page[-1]["partition"]
