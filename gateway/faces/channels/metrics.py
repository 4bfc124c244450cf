"""The numbers of channels."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from msgspec import Meta, Struct

from queuegate.gateway.faces.channels.words import ChannelName, existing_channel_of
from queuegate.gateway.faces.json.endpoints import PAGED, Answer, Answered, Call, Endpoint
from queuegate.gateway.faces.json.listing import ListQuery, page_of_queues
from queuegate.gateway.faces.json.message_members import Priority
from queuegate.gateway.operations.access.authorization import check_right, own_arn
from queuegate.gateway.operations.channels.channels import COUNTED, ChannelNumbers, numbers
from queuegate.storage.errors import QueueDoesNotExist

_TAG = "channels"
_MOST_CHANNELS = 100

Count = Annotated[int, Meta(ge=0)]
Rate = Annotated[float, Meta(description="A second.")]


class MetricsQuery(ListQuery, forbid_unknown_fields=True):
    """Of which channels."""

    channel: Annotated[
        ChannelName | None, Meta(description="Of this channel. Absent: of all of yours.")
    ] = None
    limit: Annotated[int, Meta(ge=1, le=_MOST_CHANNELS, description="At most so many.")] = (
        _MOST_CHANNELS
    )


class OfPriority(Struct):
    """What waits with one priority."""

    priority: Priority
    depth: Annotated[int, Meta(ge=0, description=f"Counted up to {COUNTED}.")]
    oldest_age_seconds: Annotated[
        int, Meta(ge=0, description="How long the one that comes next has waited.")
    ]


class RatesShown(Struct):
    """How fast it goes, by what all gateways did."""

    over_seconds: Annotated[
        float,
        Meta(
            description="Since when: up to a minute back, if somebody asked this gateway then; at "
            "first since the channel was made."
        ),
    ]
    published: Rate
    finished: Annotated[
        Rate, Meta(description="Acknowledged, expired, purged, or made a dead letter.")
    ]
    dead_letters: Rate


class Numbers(Struct):
    """A channel in numbers. Expired messages are in none of them."""

    channel: str
    depth: Annotated[int, Meta(ge=0, description="That can be had now.")]
    in_flight: Annotated[int, Meta(ge=0, description="Handed out and not acknowledged.")]
    delayed: Count
    oldest_age_seconds: Count | None
    priorities: Annotated[
        list[OfPriority], Meta(description="Those with something that waits, urgent ones first.")
    ]
    published_total: Count
    finished_total: Count
    dead_letters: Annotated[int, Meta(ge=0, description="In its dead-letter queue.")]
    dead_letters_total: Count
    rates: RatesShown
    error_rate: Annotated[
        float | None,
        Meta(description="Of what was finished, the share of dead letters. Null: nothing was."),
    ]
    looked_at: datetime


class Metrics(Struct):
    """Channels in numbers, by name in byte order."""

    channels: list[Numbers]


def _shown(found: ChannelNumbers) -> Numbers:
    metrics, rates = found.metrics, found.rates
    return Numbers(
        metrics.queue.name,
        metrics.counts.visible,
        metrics.counts.in_flight,
        metrics.counts.delayed,
        metrics.oldest_age_seconds,
        [OfPriority(*one) for one in found.priorities],
        found.totals.published,
        found.totals.finished,
        found.dead_letters,
        found.totals.dead,
        RatesShown(
            round(rates.over_seconds, 3),
            round(rates.published, 3),
            round(rates.finished, 3),
            round(rates.dead, 3),
        ),
        min(round(rates.dead / rates.finished, 4), 1.0) if rates.finished > 0 else None,
        metrics.looked_at,
    )


async def _metrics(call: Call) -> Answer:
    query: MetricsQuery = call.query
    if query.channel is not None:
        channel = await existing_channel_of(call, query.channel)
        return Answer(200, Metrics([_shown(await numbers(call.engine, call.caller, channel))]))
    check_right(call.engine, call.caller, call.right, own_arn(call.caller, call.right, "*"))
    found, headers = await page_of_queues(call, "/v1/metrics")
    shown = []
    for channel in found:
        try:
            shown.append(_shown(await numbers(call.engine, call.caller, channel)))
        except QueueDoesNotExist:
            # It was deleted meanwhile.
            continue
    return Answer(200, Metrics(shown), headers)


_EXAMPLE = {
    "channel": "alerts",
    "depth": 12,
    "in_flight": 2,
    "delayed": 0,
    "oldest_age_seconds": 41,
    "priorities": [
        {"priority": 10, "depth": 2, "oldest_age_seconds": 0},
        {"priority": 0, "depth": 10, "oldest_age_seconds": 41},
    ],
    "published_total": 2000,
    "finished_total": 1986,
    "dead_letters": 3,
    "dead_letters_total": 8,
    "rates": {"over_seconds": 60.0, "published": 12.5, "finished": 12.25, "dead_letters": 0.0},
    "error_rate": 0.0,
    "looked_at": "2030-01-31T09:00:00Z",
}

ENDPOINTS: tuple[Endpoint, ...] = (
    Endpoint(
        "GET",
        "/v1/metrics",
        "getMetrics",
        "Look at the numbers of channels",
        "How much waits, by priority and for how long, how fast it goes, and what goes wrong. "
        "Prometheus reads `/metrics`. When there are more channels, the header Link leads to them.",
        _TAG,
        _metrics,
        (Answered(200, Metrics, "The numbers.", {"channels": [_EXAMPLE]}, headers=PAGED),),
        query=MetricsQuery,
        right="sqs:GetQueueAttributes",
    ),
)
