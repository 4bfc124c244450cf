"""The Python client of logs, for event loops; `queuegate.log.sync` is the same for threads.

It needs aiohttp and nothing of the gateway.
"""

from queuegate.log.client import LogClient
from queuegate.log.log_requests import (
    AccessDenied,
    Backoff,
    Closed,
    Conflict,
    Failure,
    Group,
    GroupSettings,
    LeaseLost,
    Log,
    LogError,
    LogSettings,
    NewGroup,
    NewRecord,
    NotFound,
    Partition,
    Progress,
    Published,
    Record,
    Refused,
    Replaced,
    Subscriber,
    Superseded,
    Unavailable,
)
from queuegate.log.subscriber import AsyncDelivery, Delivery, Subscription

__all__ = [
    "AccessDenied",
    "AsyncDelivery",
    "Backoff",
    "Closed",
    "Conflict",
    "Delivery",
    "Failure",
    "Group",
    "GroupSettings",
    "LeaseLost",
    "Log",
    "LogClient",
    "LogError",
    "LogSettings",
    "NewGroup",
    "NewRecord",
    "NotFound",
    "Partition",
    "Progress",
    "Published",
    "Record",
    "Refused",
    "Replaced",
    "Subscriber",
    "Subscription",
    "Superseded",
    "Unavailable",
]
