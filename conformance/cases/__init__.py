"""The list of cases: what every official client must find in the gateway."""

from __future__ import annotations

from conformance.casebook import Case
from conformance.cases import (
    credentials,
    deliveries,
    publishing,
    push_and_sms,
    queues,
    schedules,
    sessions,
    subscriptions,
    topics,
)

CASES: tuple[Case, ...] = (
    *queues.CASES,
    *topics.CASES,
    *subscriptions.CASES,
    *publishing.CASES,
    *deliveries.CASES,
    *push_and_sms.CASES,
    *schedules.CASES,
    *sessions.CASES,
    *credentials.CASES,
)
