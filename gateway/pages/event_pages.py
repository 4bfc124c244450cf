"""The page of the events of an account: what happens to its messages, as it happens."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Annotated, Literal

import orjson
from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from queuegate.gateway.faces.json.json_endpoints import Answer, Endpoints
from queuegate.gateway.faces.json.json_fields import Instant, SqsId, about, example
from queuegate.gateway.operations.telemetry.event_recordings import (
    KINDS,
    MOST_EVENTS,
    EventReader,
    read_events,
)
from queuegate.gateway.pages.admin_endpoints import AccountId, AdminCall, AdminQuery, Text
from queuegate.storage.storage_errors import MalformedInput

_MOST_WAIT_SECONDS = 60
_STREAM = "text/event-stream"
_STREAM_HEADERS = {
    "content-type": f"{_STREAM}; charset=utf-8",
    "cache-control": "no-store",
    "x-accel-buffering": "no",
}
_KEEP_ALIVE_SECONDS = 15.0
_WRITTEN_AT_ONCE = 50
_CURSOR = example("1.6.6")


class EventQuery(AdminQuery, forbid_unknown_fields=True):
    """Conditions of events, all of which hold, and the time to wait for them."""

    queue: Text | UnsetType = UNSET
    topic: Text | UnsetType = UNSET
    message_id: Text | UnsetType = UNSET
    kind: Annotated[
        str | UnsetType,
        about(
            f"One or several of {', '.join(KINDS)}, with commas.",
            extra_json_schema={"enum": [*KINDS]},
        ),
    ] = UNSET
    after: Annotated[
        Text | UnsetType,
        about("`next` of an earlier answer, or `now`. Absent: the first kept event."),
    ] = UNSET
    wait: Annotated[
        int, about("Seconds until an answer without events.", ge=0, le=_MOST_WAIT_SECONDS)
    ] = 0
    quiet: Annotated[
        Annotated[int, Meta(ge=1, le=_MOST_WAIT_SECONDS * 1000)] | UnsetType,
        about("Milliseconds without an event, after which the answer is `quiet`."),
    ] = UNSET
    limit: Annotated[int, Meta(ge=1, le=MOST_EVENTS)] = MOST_EVENTS


class ShownEvent(Struct):
    """An event. Other members depend on its kind."""

    kind: Literal["sent", "received", "deleted", "expired", "dead_lettered", "delivered",
                  "failed", "fired", "gap"]  # fmt: skip
    at: Annotated[Instant | UnsetType, about("By the account's clock. A gap has none.")] = UNSET
    region: Annotated[str | UnsetType, example("us-east-1")] = UNSET
    queue: Annotated[str | UnsetType, example("orders")] = UNSET
    topic: str | UnsetType = UNSET
    message_id: SqsId | UnsetType = UNSET


class PageOfEvents(Struct, kw_only=True):
    """Events, in the order of their commits."""

    account: AccountId
    recording: bool
    events: list[ShownEvent]
    quiet: Annotated[
        bool | UnsetType, about("With the parameter `quiet`: nothing came for so long.")
    ] = UNSET
    lost: Annotated[int | None, about("Events dropped since `after`. Null: an unknown number.")]
    next: Annotated[str, about("`after` of the next request."), _CURSOR]


class ChangedRecording(Struct):
    """The recording of an account."""

    account: AccountId
    recording: bool
    next: Annotated[str | UnsetType, about("The place behind the last event."), _CURSOR] = UNSET


endpoint = Endpoints("events")


@endpoint("GET /_admin/events", "", refusals=(429,))
async def list_events(call: AdminCall, query: EventQuery) -> Answer[PageOfEvents]:
    """List events, or wait for them. The first request starts the recording of the account, which
    ends an hour after the last one. With `Accept: text/event-stream`, the answer is a stream of
    Server-Sent Events. Returns 200: Events."""
    request = call.request
    is_stream = request.method == "GET" and _STREAM in request.headers.get("accept", "")
    after = query.after or ("now" if query.quiet else "")
    if is_stream:
        after = request.headers.get("last-event-id") or after
    members = {
        name: getattr(query, name)
        for name in ("queue", "topic", "message_id")
        if getattr(query, name)
    }
    if query.message_id:
        members["message_id"] = query.message_id.lower()
    kinds = set(query.kind.split(",")) if query.kind else set()
    if not kinds <= {*KINDS}:
        raise MalformedInput(f"kind is one of {', '.join(KINDS)}, or several, with commas.")
    ring = await call.engine.events.ring_of(call.account_id)
    reader = EventReader(ring, kinds, members, after)
    if is_stream:
        return Answer(200, _stream(reader), _STREAM_HEADERS)
    found, is_quiet = await read_events(reader, query.limit, query.wait, (query.quiet or 0) / 1000)
    page = {"account": call.account_id, "recording": not ring.is_ended, "events": found}
    quiet = {"quiet": is_quiet} if query.quiet else {}
    return Answer(
        200, Raw(orjson.dumps({**page, **quiet, "lost": reader.lost, "next": reader.cursor}))
    )


@endpoint("PUT /_admin/events", "", refusals=(429,))
async def record_events(call: AdminCall, query: AdminQuery) -> Answer[ChangedRecording]:
    """Record events. Starts a recording of the account, or keeps it, until DELETE or a reset ends
    it. Returns 200: The recording."""
    ring = await call.engine.events.ring_of(call.account_id, is_kept=True)
    return Answer(200, ChangedRecording(call.account_id, True, ring.cursor(ring.end)))


@endpoint("POST /_admin/events", "", refusals=(429,))
async def start_events(call: AdminCall, query: AdminQuery) -> Answer[ChangedRecording]:
    """Record events. The same as PUT. Returns 200: The recording."""
    return await record_events(call, query)


@endpoint("DELETE /_admin/events", "", refusals=())
async def stop_events(call: AdminCall, query: AdminQuery) -> Answer[ChangedRecording]:
    """Stop the recording. Its readers end. Returns 200: The account records nothing."""
    await call.engine.events.stop(call.account_id)
    return Answer(200, ChangedRecording(call.account_id, False))


async def _stream(reader: EventReader) -> AsyncGenerator[bytes, None]:
    """Yield events until the recording ends. Nothing waits for a slow client: it reads from the
    ring later, and is told how many events it has lost."""
    # At once, so that proxies pass the head on.
    yield b":\n\n"
    lost: int | None = 0
    while not reader.ring.is_ended:
        until = asyncio.get_running_loop().time() + _KEEP_ALIVE_SECONDS
        found = await reader.wait(_WRITTEN_AT_ONCE, until)
        if reader.lost != lost:
            lost = reader.lost
            yield b"event: lost\ndata: %b\n\n" % orjson.dumps({"lost": lost})
        yield b"".join([one.shown for one in found]) or b":\n\n"
    yield b"event: end\ndata: {}\n\n"
