"""The client of an event loop: publishes, subscribes, and administers."""

from __future__ import annotations

import asyncio
import itertools
import secrets
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal, Self, TypedDict, Unpack

from queuegate.log.log_requests import (
    ClientCredentials,
    GatewayRequests,
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
    encoded,
)
from queuegate.log.subscriber import Subscription, SubscriptionOptions, wire

_AT_ONCE = 1_000
_BYTES_AT_ONCE = 6_000_000
_PAGE = 1_000
_SHORTEST_PAGE = 100

Position = Literal["earliest", "latest"] | datetime


class ClientOptions(TypedDict, total=False):
    """Options of both clients, with the defaults of the asynchronous one."""

    api_key: str | None
    account: str | None
    region: str | None
    patience_seconds: float


def record_ids() -> Iterator[str]:
    """Yield unique ids for records, so that repeated requests add no second record."""
    return map(f"{secrets.token_hex(12)}-{{}}".format, itertools.count(1))


def publications(
    records: Iterable[NewRecord], own_ids: Iterator[str]
) -> Iterator[tuple[bytes, list[tuple[NewRecord, str]]]]:
    """Yield the bodies of requests that publish these records, each with its records and their ids.

    The size of a record depends on its content: quotes and non-ASCII characters are escaped.
    """
    part: list[tuple[NewRecord, str]] = []
    sent: list[bytes] = []
    size = 0
    for record in records:
        members = record.members(next(own_ids))
        one = encoded(members)
        if part and (len(part) == _AT_ONCE or size + len(one) > _BYTES_AT_ONCE):
            yield b'{"records":[%b]}' % b",".join(sent), part
            part, sent, size = [], [], 0
        part.append((record, members["id"]))
        sent.append(one)
        size += len(one) + 1
    if part:
        yield b'{"records":[%b]}' % b",".join(sent), part


class LogClient:
    """Logs of a gateway, or of several on one database: requests go to another if one does not
    answer.

    ``api_key`` is a key of `queuegate keys`; without one, ``account`` and ``region`` name the owner
    of the logs. Requests without an answer are repeated for ``patience_seconds``, and have their
    effect once. Close the client, or use it as a context manager.
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
        self._calls = GatewayRequests(
            urls, ClientCredentials(api_key, account, region), patience_seconds
        )
        self._subscriptions: list[Subscription] = []
        self._own_ids = record_ids()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, _: object, error: BaseException | None, __: object) -> None:
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
        """Append a record to a log, which is created if it does not exist. On disk when this
        returns.

        ``id``: a record with the same key and id is not added again, even after an error that left
        the outcome open. Without an id, repeated requests add no second record.
        """
        [published] = await self.publish_many(log, [NewRecord(payload, key, id, metadata)])
        return published

    async def publish_many(self, log: str, records: Iterable[NewRecord]) -> list[Published]:
        """Append records in this order, up to 1,000 records (and 6 MB) with each request. A request
        appends all of its records or none."""
        published: list[Published] = []
        for body, part in publications(records, self._own_ids):
            answer = await self._calls.ask("POST", log, "records", body=body)
            for (record, own_id), found in zip(part, answer.body["records"], strict=True):
                # A duplicate of a generated id is a repeated request of ours.
                duplicate = bool(record.id and found.get("duplicate"))
                published.append(Published.of(found, id=own_id, duplicate=duplicate))
        return published

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
        """Return deliveries to one more subscriber of a group: ``async for delivery in
        subscribe(...)``, or ``for`` with the client for threads.

        ``subscriber`` is a unique name; None: a generated one. ``most_in_hand``: the most
        deliveries that are not settled at a time. ``auto_extend``: keep deliveries hidden from
        others until they are settled, as long as this process lives. ``shutdown_seconds``: the
        longest that `close` waits for unsettled deliveries. ``settings`` are the group's: it is
        created with them, and an existing group must have them.
        """
        options = SubscriptionOptions(
            subscriber, most_in_hand, auto_extend, shutdown_seconds, settings
        )
        subscription = Subscription(self._calls, log, group, options)
        self._subscriptions = [one for one in self._subscriptions if not one.is_closed]
        self._subscriptions.append(subscription)
        return subscription

    async def create_log(
        self, log: str, *, partitions: int | None = None, **settings: Unpack[LogSettings]
    ) -> Log:
        """Create a log with that many partitions, or with one for each key. Idempotent."""
        body = {"log": log, **settings}
        if partitions is not None:
            body["partitions"] = partitions
        return Log.of((await self._calls.ask("POST", body=body)).body)

    async def change_log(self, log: str, **settings: Unpack[LogSettings]) -> Log:
        """Change the given settings."""
        return Log.of((await self._calls.ask("PATCH", log, body=settings)).body)

    async def log(self, log: str) -> Log:
        """Describe a log."""
        return Log.of((await self._calls.ask("GET", log)).body)

    async def logs(self, prefix: str | None = None) -> list[Log]:
        """List all logs by name, or those with the prefix."""
        found: list[Log] = []
        while True:
            after = found[-1].log if found else None
            params = {"prefix": prefix, "max": _SHORTEST_PAGE, "after": after}
            page = (await self._calls.ask("GET", params=params)).body["logs"]
            found += map(Log.of, page)
            if len(page) < _SHORTEST_PAGE:
                return found

    async def delete_log(self, log: str) -> None:
        """Delete a log with its records and groups, if it exists. Its dead letters stay."""
        await self._calls.ask("DELETE", log)

    async def purge_log(self, log: str) -> int:
        """Delete all records and return their count. Groups stay, and offsets go on."""
        count: int = (await self._calls.ask("POST", log, "purge")).body["records"]
        return count

    async def partitions(self, log: str) -> list[Partition]:
        """List all partitions by number."""
        return [Partition.of(one) async for one in self._pages(log, "partitions")]

    async def records(
        self, log: str, partition: int, start: int = 0, most: int = 100
    ) -> list[Record]:
        """Read records of a partition from an offset on, without effect on any group."""
        params = {"partition": partition, "from": start, "max": most}
        answer = await self._calls.ask("GET", log, "records", params=params)
        return [Record.of(one) for one in answer.body["records"]]

    async def delete_record(self, log: str, partition: int, offset: int) -> None:
        """Delete one record for all groups, if it exists."""
        await self._calls.ask("DELETE", log, "records", partition, offset)

    async def create_group(self, log: str, group: str, **settings: Unpack[NewGroup]) -> Group:
        """Create a group. Idempotent; other settings raise Conflict."""
        parts = (log, "groups", group)
        return Group.of((await self._calls.ask("PUT", *parts, body=wire(settings))).body)

    async def change_group(self, log: str, group: str, **settings: Unpack[GroupSettings]) -> Group:
        """Change the given settings."""
        parts = (log, "groups", group)
        return Group.of((await self._calls.ask("PATCH", *parts, body=settings)).body)

    async def groups(self, log: str) -> list[Group]:
        """List all groups of a log."""
        answer = await self._calls.ask("GET", log, "groups")
        return [Group.of(one) for one in answer.body["groups"]]

    async def group(self, log: str, group: str) -> Group:
        """Describe a group and its lag."""
        return Group.of((await self._calls.ask("GET", log, "groups", group)).body)

    async def progress(self, log: str, group: str) -> list[Progress]:
        """Return the progress of a group, by partition."""
        pages = self._pages(log, "groups", group, "partitions")
        return [Progress.of(one) async for one in pages]

    async def delete_group(self, log: str, group: str) -> None:
        """Delete a group, if it exists. The log stays as it is."""
        await self._calls.ask("DELETE", log, "groups", group)

    async def seek(self, log: str, group: str, to: Position | Mapping[int, int]) -> None:
        """Move a group: all partitions to their first or next record or to a time, or some, by
        number, to an offset. Outstanding deliveries become void."""
        body: dict[str, Any]
        if isinstance(to, Mapping):
            body = {"offsets": [{"partition": p, "offset": offset} for p, offset in to.items()]}
        else:
            body = wire({"to": to})
        await self._calls.ask("POST", log, "groups", group, "seek", body=body)

    async def dead_letters(
        self, log: str, group: str | None = None, most: int = 100
    ) -> list[Record]:
        """Return the oldest dead letters of a log, or of one of its groups."""
        params = {"group": group, "max": most}
        answer = await self._calls.ask("GET", log, "dead-letters", params=params)
        return [Record.of(one) for one in answer.body["records"]]

    async def requeue(self, log: str, places: Sequence[tuple[int, int]] | None = None) -> int:
        """Publish dead letters again, for the group that gave them up: these (partition, offset),
        or all. Returns their count."""
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
        """Delete all dead letters of a log and return their count."""
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
