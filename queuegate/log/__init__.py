"""The Python client of logs, for event loops; `queuegate.log.sync` is the same for threads.

It needs aiohttp and nothing of the gateway.
"""

from queuegate.log.calls import (
    AccessDenied,
    Closed,
    Conflict,
    LeaseLost,
    LogError,
    NotFound,
    Refused,
    Replaced,
    Superseded,
    Unavailable,
)
from queuegate.log.client import LogClient
from queuegate.log.consumer_deliveries import Delivery
from queuegate.log.log_records import (
    Backoff,
    Failure,
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
    Subscriber,
)
from queuegate.log.subscriber import AsyncDelivery, Subscription

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
