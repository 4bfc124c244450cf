"""Listings of queues on faces of JSON: by name, a page at a time."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from queuegate.gateway.faces.json.endpoints import Call, next_page
from queuegate.gateway.operations.queues import queues
from queuegate.gateway.operations.runtime.limits import LIMITS
from queuegate.storage.model import Queue


class ListQuery(Struct, forbid_unknown_fields=True):
    """Which ones to list."""

    limit: Annotated[int, Meta(ge=1, le=LIMITS.listed, description="At most so many.")] = (
        LIMITS.listed
    )
    after: Annotated[
        str, Meta(max_length=80, description="Only names behind this one: the last one you got.")
    ] = ""


async def page_of_queues(
    call: Call, place: str, **prefix: str
) -> tuple[list[Queue], dict[str, str]]:
    """The queues that a ``ListQuery`` asks for, and the header that leads from this place to the
    others. ``prefix``: only names that begin so, under the name of its parameter."""
    query: ListQuery = call.query
    begins = "".join(prefix.values())
    found, has_more = await queues.list_queues(
        call.engine, call.caller, prefix=begins, after=query.after, limit=query.limit
    )
    if not (has_more and found):
        return found, {}
    more = prefix if begins else {}
    return found, next_page(place, limit=query.limit, after=found[-1].name, **more)
