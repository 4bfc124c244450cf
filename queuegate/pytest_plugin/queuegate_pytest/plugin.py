"""pytest fixtures for code that uses SQS, SNS and EventBridge Scheduler."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterator
from typing import Any

import pytest

from queuegate_pytest.accounts import Account, AccountFaults, Clock, Message, Outbox, Queues
from queuegate_pytest.running_gateway import RunningGateway, UnknownOption, settings_of, shared
from queuegate_pytest.web_hooks import WebHooks

_ACCOUNT = pytest.StashKey[Account]()

Start = Callable[[dict[str, str]], RunningGateway]


def pytest_configure(config: pytest.Config) -> None:
    """Describe the marker."""
    config.addinivalue_line(
        "markers",
        "queuegate(policies=False, cooldowns=False): use a gateway that enforces policies, or the "
        "60 s cool-downs of SQS",
    )


@pytest.fixture(scope="session")
def queuegate_gateways(
    pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory
) -> Start:
    """Returns the gateway with these variables, started once for all workers of a session."""
    folder, parent = tmp_path_factory.getbasetemp(), os.getpid()
    if hasattr(pytestconfig, "workerinput"):
        folder, parent = folder.parent, os.getppid()
    return lambda settings: shared(folder, parent, settings)


@pytest.fixture
def queuegate(request: pytest.FixtureRequest, queuegate_gateways: Start) -> RunningGateway:
    """The gateway of this test: one for the session, and one for each use of the marker."""
    marker = request.node.get_closest_marker("queuegate")
    try:
        settings = settings_of(marker.kwargs if marker else {})
    except UnknownOption as error:
        raise pytest.UsageError(f"queuegate({error}") from None
    return queuegate_gateways(settings)


@pytest.fixture
def aws(request: pytest.FixtureRequest, queuegate: RunningGateway) -> Iterator[Account]:
    """An account of this test, in the environment of every SDK."""
    with Account(queuegate.url) as account, account.in_environment():
        request.node.stash[_ACCOUNT] = account
        yield account


@pytest.fixture
def queues(aws: Account) -> Queues:
    """Creates queues in the account of this test."""
    return aws.queues


@pytest.fixture
def clock(aws: Account) -> Clock:
    """The clock of the account of this test."""
    return aws.clock


@pytest.fixture
def outbox(aws: Account) -> Outbox:
    """Messages that the account of this test did not send."""
    return aws.outbox


@pytest.fixture
def faults(aws: Account) -> AccountFaults:
    """Rules by which requests of this test fail on purpose, removed after the test."""
    return aws.faults


@pytest.fixture
def peek(aws: Account) -> Callable[[str], list[Message]]:
    """Returns the messages of a queue by its name, without receiving them."""
    return aws.peek


@pytest.fixture
def wait_for(aws: Account) -> Callable[..., Any]:
    """Waits until something happens to messages of this test, or a function returns something
    true."""
    aws.events(after="now")
    return aws.wait_for


@pytest.fixture
def hooks() -> Iterator[WebHooks]:
    """A receiver of web hooks that confirms its subscriptions."""
    with WebHooks() as receiver:
        yield receiver


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show the queues of a test that failed."""
    report = yield
    account = item.stash.get(_ACCOUNT, None)
    if report.when == "call" and report.failed and account is not None:
        report.sections.append(("queues of the test", account.report()))
    return report
