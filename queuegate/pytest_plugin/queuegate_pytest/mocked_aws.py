"""`mock_aws` in the form of moto's: a context and a decorator, with a gateway in place of mocks."""

from __future__ import annotations

import atexit
import contextlib
import os
import unittest
from collections.abc import Callable
from functools import lru_cache, wraps
from typing import Any, ClassVar, TypeVar
from unittest import mock

import boto3  # type: ignore[import-untyped]

from queuegate_pytest.accounts import Account, foreign_variables
from queuegate_pytest.running_gateway import running

_ACCOUNT_ID = "123456789012"
"""The account of moto, which suites have in their ARNs."""

Subject = TypeVar("Subject", bound=Callable[..., Any])


@lru_cache(maxsize=1)
def _url(process_id: int) -> str:
    """Return the URL of the gateway of this process, which ends with it."""
    stack = contextlib.ExitStack()
    atexit.register(stack.close)
    return stack.enter_context(running()).url


class MockedAws(contextlib.ContextDecorator):
    """An empty account in the environment of every SDK, as a context or decorator. A context in
    another one has the same account, and the outermost deletes everything at its end."""

    _open: ClassVar[list[contextlib.ExitStack]] = []
    account: Account

    def __enter__(self) -> Account:
        self.start()
        return self.account

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Enter the context."""
        region = os.environ.get("AWS_DEFAULT_REGION") or "us-east-1"
        self.account = Account(_url(os.getpid()), _ACCOUNT_ID, region)
        with contextlib.ExitStack() as stack:
            if not self._open:
                stack.callback(_forget_session)
                stack.enter_context(self.account)
            stack.enter_context(mock.patch.dict(os.environ, self.account.environment()))
            for name in foreign_variables():
                del os.environ[name]
            _forget_session()
            self._open.append(stack.pop_all())

    def stop(self) -> None:
        """Leave the context."""
        self._open.pop().close()

    def __call__(self, subject: Subject) -> Subject:
        """Decorate a function, each test of a class, or the set-up of a TestCase."""
        if not isinstance(subject, type):
            return super().__call__(subject)
        if issubclass(subject, unittest.TestCase):
            set_up = subject.setUp

            @wraps(set_up)
            def prepared(case: unittest.TestCase) -> None:
                self.start()
                case.addCleanup(self.stop)
                set_up(case)

            setattr(subject, "setUp", prepared)  # noqa: B010 - mypy refuses a method
        else:
            for name, member in [*vars(subject).items()]:
                if name.startswith("test") and callable(member):
                    setattr(subject, name, self(member))
        return subject


def mock_aws(subject: Any = None, **_: Any) -> Any:
    """Return a context and decorator, or decorate ``subject``. Options of moto are ignored."""
    return MockedAws() if subject is None else MockedAws()(subject)


def _forget_session() -> None:
    boto3.DEFAULT_SESSION = None
