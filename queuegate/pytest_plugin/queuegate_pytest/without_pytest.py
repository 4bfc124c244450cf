"""An account for unittest, and for any block of code: decorators and context managers."""

from __future__ import annotations

import atexit
import contextlib
import functools
import inspect
import os
import unittest
from collections.abc import Callable, Iterator
from typing import Any, ClassVar, TypeVar, overload

from queuegate_pytest.accounts import Account
from queuegate_pytest.running_gateway import RunningGateway, running, settings_of

_ACCOUNT_OF_MOTO = "123456789012"
"""Suites for moto have it in their ARNs."""

Decorated = TypeVar("Decorated", bound=Callable[..., Any])

_until_exit = contextlib.ExitStack()
atexit.register(_until_exit.close)


@functools.cache
def _gateway(settings: frozenset[tuple[str, str]]) -> RunningGateway:
    """Return the one gateway of this process with these variables. It ends with the process."""
    return _until_exit.enter_context(running(**dict(settings)))


@contextlib.contextmanager
def _account(settings: frozenset[tuple[str, str]]) -> Iterator[Account]:
    """Yield a new account in the environment of every SDK. An error has its queues in a note."""
    with Account(_gateway(settings).url) as account, account.in_environment(), _noting(account):
        yield account


@contextlib.contextmanager
def _noting(account: Account) -> Iterator[None]:
    try:
        yield
    except unittest.SkipTest:
        raise
    except Exception as error:
        # Python 3.10 has no notes.
        if hasattr(error, "add_note"):
            error.add_note(f"queues of the test:\n{account.report()}")
        raise


class QueuegateAccounts:
    """Gives an account to each test that it decorates, and to the block that it is a context of."""

    def __init__(self, options: dict[str, object]) -> None:
        self._settings = frozenset(settings_of(options).items())
        self._open: list[contextlib.AbstractContextManager[Account]] = []

    def __enter__(self) -> Account:
        self._open.append(_account(self._settings))
        return self._open[-1].__enter__()

    def __exit__(self, *error: Any) -> bool | None:
        return self._open.pop().__exit__(*error)

    def __call__(self, decorated: Decorated) -> Decorated:
        """Decorate a TestCase, whose tests find the account as ``self.aws``, or a function, which
        gets the account as its last argument."""
        made: Decorated
        if isinstance(decorated, type):
            made = self._with_accounts(decorated)
        else:
            made = _wrapped(decorated, lambda: _account(self._settings), passes=True)
        return made

    def _with_accounts(self, case: Any) -> Any:
        if not issubclass(case, unittest.TestCase):
            raise TypeError(f"with_queuegate takes a TestCase or a function, not {case!r}")
        run, settings = case.run, self._settings

        @functools.wraps(run)
        def run_with_account(self: Any, result: unittest.TestResult | None = None) -> Any:
            method = getattr(self, self._testMethodName)
            if getattr(case, "__unittest_skip__", False) or hasattr(method, "__unittest_skip__"):
                return run(self, result)
            with _account(settings) as self.aws:
                noted = _wrapped(method, lambda: _noting(self.aws), passes=False)
                setattr(self, self._testMethodName, noted)
                return run(self, result)

        case.run = run_with_account
        return case


def _wrapped(
    function: Any, context: Callable[[], contextlib.AbstractContextManager[Any]], *, passes: bool
) -> Any:
    """Return the function in this context. ``passes``: its last argument is that of the context."""
    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def wait_in_context(*arguments: Any, **named: Any) -> Any:
            with context() as found:
                return await function(*arguments, *([found] if passes else []), **named)

        return wait_in_context

    @functools.wraps(function)
    def call_in_context(*arguments: Any, **named: Any) -> Any:
        with context() as found:
            return function(*arguments, *([found] if passes else []), **named)

    return call_in_context


@overload
def with_queuegate(decorated: Decorated, /) -> Decorated: ...
@overload
def with_queuegate(*, policies: bool = False, cooldowns: bool = False) -> QueuegateAccounts: ...
def with_queuegate(decorated: Any = None, /, **options: bool) -> Any:
    """Give an account of a gateway to a TestCase, to a function, or to a block: as a decorator,
    with or without arguments, or as ``with with_queuegate() as aws:``."""
    accounts = QueuegateAccounts({**options})
    return accounts if decorated is None else accounts(decorated)


class MockedAws:
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
        self.account = Account(_gateway(frozenset()).url, _ACCOUNT_OF_MOTO, region)
        with contextlib.ExitStack() as stack:
            if not self._open:
                stack.enter_context(self.account)
            stack.enter_context(self.account.in_environment())
            self._open.append(stack.pop_all())

    def stop(self) -> None:
        """Leave the context."""
        self._open.pop().close()

    def __call__(self, decorated: Decorated) -> Decorated:
        """Decorate a function, each test of a class, or the set-up of a TestCase."""
        if not isinstance(decorated, type):
            made: Decorated = _wrapped(decorated, lambda: self, passes=False)
            return made
        if issubclass(decorated, unittest.TestCase):
            set_up = decorated.setUp

            @functools.wraps(set_up)
            def prepared(case: unittest.TestCase) -> None:
                self.start()
                case.addCleanup(self.stop)
                set_up(case)

            setattr(decorated, "setUp", prepared)  # noqa: B010 - mypy refuses a method
        else:
            for name, member in [*vars(decorated).items()]:
                if name.startswith("test") and callable(member):
                    setattr(decorated, name, self(member))
        return decorated


def mock_aws(decorated: Any = None, **_: Any) -> Any:
    """Return a context and decorator in the form of moto's, or decorate a function or class.
    Options of moto are ignored."""
    return MockedAws() if decorated is None else MockedAws()(decorated)
