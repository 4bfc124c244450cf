"""The same client for threads: an event loop of its own in a thread beside them.

Any number of threads may use one client, and take from one subscription.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import partial, wraps
from typing import Any, Concatenate, ParamSpec, Self, TypeVar, Unpack

from queuegate.log import client as of_loops
from queuegate.log import subscriber
from queuegate.log.log_requests import Closed
from queuegate.log.subscriber import Delivery, Hold

P = ParamSpec("P")
R = TypeVar("R")

SyncDelivery = Delivery[Future[None]]


class _Loop:
    """An event loop in a daemon thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._handing_in = threading.Lock()
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name="queuegate.log", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        self._loop.run_forever()
        # Calls from before the end get an answer.
        while tasks := asyncio.all_tasks(self._loop):
            for task in tasks:
                task.cancel()
            self._loop.run_until_complete(asyncio.wait(tasks))
        self._loop.run_until_complete(asyncio.sleep(0))
        self._loop.close()

    def soon(self, act: Callable[[], object]) -> None:
        """Run it in the loop, without waiting."""
        with self._handing_in:
            if self._is_closed:
                raise Closed("the client is closed")
            self._loop.call_soon_threadsafe(act)

    def call(self, task: Coroutine[Any, Any, R]) -> R:
        """Run a coroutine in the loop and return its result. An interrupt of the caller cancels
        it."""
        with self._handing_in:
            if self._is_closed:
                task.close()
                raise Closed("the client is closed")
            begun = asyncio.run_coroutine_threadsafe(task, self._loop)
        try:
            return begun.result()
        except BaseException:
            begun.cancel()
            raise

    def close(self) -> None:
        with self._handing_in:
            if not self._is_closed:
                self._is_closed = True
                self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()


def _blocking(
    method: Callable[Concatenate[of_loops.LogClient, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[LogClient, P], R]:
    """Return a blocking form of a method of the asynchronous client."""

    @wraps(method)
    def call(self: LogClient, /, *arguments: P.args, **options: P.kwargs) -> R:
        return self._loop.call(method(self._client, *arguments, **options))

    return call


def _subscribing(
    method: Callable[Concatenate[of_loops.LogClient, P], subscriber.Subscription],
) -> Callable[Concatenate[LogClient, P], Subscription]:
    @wraps(method)
    def call(self: LogClient, /, *arguments: P.args, **options: P.kwargs) -> Subscription:
        return Subscription(self._loop, method(self._client, *arguments, **options))

    return call


class LogClient:
    """The blocking form of `queuegate.log.LogClient`."""

    def __init__(
        self, endpoint_url: str | Sequence[str], **options: Unpack[of_loops.ClientOptions]
    ) -> None:
        self._client = of_loops.LogClient(endpoint_url, **options)
        self._loop = _Loop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        self.close(None if error is None else 0.0)

    def close(self, seconds: float | None = None) -> None:
        """Close all subscriptions, as `Subscription.close`, and the connections."""
        try:
            with suppress(Closed):
                self._loop.call(self._client.close(seconds))
        finally:
            self._loop.close()

    subscribe = _subscribing(of_loops.LogClient.subscribe)
    publish = _blocking(of_loops.LogClient.publish)
    publish_many = _blocking(of_loops.LogClient.publish_many)
    create_log = _blocking(of_loops.LogClient.create_log)
    change_log = _blocking(of_loops.LogClient.change_log)
    log = _blocking(of_loops.LogClient.log)
    logs = _blocking(of_loops.LogClient.logs)
    delete_log = _blocking(of_loops.LogClient.delete_log)
    purge_log = _blocking(of_loops.LogClient.purge_log)
    partitions = _blocking(of_loops.LogClient.partitions)
    records = _blocking(of_loops.LogClient.records)
    delete_record = _blocking(of_loops.LogClient.delete_record)
    create_group = _blocking(of_loops.LogClient.create_group)
    change_group = _blocking(of_loops.LogClient.change_group)
    groups = _blocking(of_loops.LogClient.groups)
    group = _blocking(of_loops.LogClient.group)
    progress = _blocking(of_loops.LogClient.progress)
    delete_group = _blocking(of_loops.LogClient.delete_group)
    seek = _blocking(of_loops.LogClient.seek)
    dead_letters = _blocking(of_loops.LogClient.dead_letters)
    requeue = _blocking(of_loops.LogClient.requeue)
    purge_dead_letters = _blocking(of_loops.LogClient.purge_dead_letters)


class Subscription:
    """The blocking form of `queuegate.log.Subscription`, by ``for``, in any number of threads."""

    def __init__(self, loop: _Loop, subscription: subscriber.Subscription) -> None:
        self._loop = loop
        self._subscription = subscription
        self._pending_lock = threading.Lock()
        self._told: list[tuple[Hold, str, dict[str, Any], Future[None]]] = []

    def __enter__(self) -> Self:
        self._loop.call(self._subscription.start())
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        self.close(None if error is None else 0.0)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> SyncDelivery:
        delivery = self._subscription.take()
        if delivery is None:
            delivery = self._loop.call(self._next())
        elif self._subscription.is_empty:
            self._loop.soon(self._subscription.look_again)
        if delivery is None:
            raise StopIteration
        return delivery.settled_by(self._settle)

    async def _next(self) -> subscriber.AsyncDelivery | None:
        with suppress(StopAsyncIteration):
            return await anext(self._subscription)
        return None

    def _settle(self, hold: Hold, do: str, members: dict[str, Any]) -> Future[None]:
        known: Future[None] = Future()
        with self._pending_lock:
            # The first one schedules the call for those after it.
            if not self._told:
                self._loop.soon(self._send)
            self._told.append((hold, do, members, known))
        return known

    def _send(self) -> None:
        with self._pending_lock:
            told, self._told = self._told, []
        for hold, do, members, known in told:
            outcome = self._subscription.settle(hold, do, members)
            outcome.add_done_callback(partial(_pass_on, known))

    @property
    def subscriber(self) -> str:
        """The subscriber's name."""
        return self._subscription.subscriber

    @property
    def partitions(self) -> dict[int, str | None]:
        """The partitions that it holds: keys by number."""
        return dict(self._subscription.partitions)

    def stop(self) -> None:
        """As `queuegate.log.Subscription.stop`, from any thread."""
        self._loop.soon(self._subscription.stop)

    def close(self, seconds: float | None = None) -> None:
        """As `queuegate.log.Subscription.close`."""
        self._loop.call(self._subscription.close(seconds))


def _pass_on(known: Future[None], outcome: asyncio.Future[None]) -> None:
    if not known.set_running_or_notify_cancel():
        return
    error = None if outcome.cancelled() else outcome.exception()
    if error is not None:
        known.set_exception(error)
    else:
        known.set_result(None)
