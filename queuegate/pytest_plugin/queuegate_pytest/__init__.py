"""Accounts of a Queuegate gateway for tests, with pytest fixtures and without."""


from queuegate_pytest.accounts import Account
from queuegate_pytest.accounts import Clock
from queuegate_pytest.accounts import Message
from queuegate_pytest.accounts import Outbox
from queuegate_pytest.accounts import Queue
from queuegate_pytest.accounts import Queues
from queuegate_pytest.accounts import RequestRefused
from queuegate_pytest.mocked_aws import MockedAws
from queuegate_pytest.mocked_aws import mock_aws
from queuegate_pytest.running_gateway import CannotStart
from queuegate_pytest.running_gateway import RunningGateway
from queuegate_pytest.running_gateway import running
from queuegate_pytest.web_hooks import Notification
from queuegate_pytest.web_hooks import WebHooks
from queuegate_pytest.without_pytest import with_queuegate


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
