"""Accounts of a Queuegate gateway for tests, with pytest fixtures and without."""

from queuegate_pytest.accounts import Account, Clock, Message, Outbox, Queue, Queues, RequestRefused
from queuegate_pytest.running_gateway import CannotStart, RunningGateway, running
from queuegate_pytest.web_hooks import Notification, WebHooks
from queuegate_pytest.without_pytest import MockedAws, mock_aws, with_queuegate

__all__ = [
    "Account",
    "CannotStart",
    "Clock",
    "Message",
    "MockedAws",
    "Notification",
    "Outbox",
    "Queue",
    "Queues",
    "RequestRefused",
    "RunningGateway",
    "WebHooks",
    "mock_aws",
    "running",
    "with_queuegate",
]
