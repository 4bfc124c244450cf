"""Policy documents: their JSON, checked and ready to be asked."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import orjson

from queuegate.protocol.errors import Malformed
from queuegate.protocol.policies.requests import Request
from queuegate.protocol.policies.statements import Kind, Reach, Statement, compile_statement

_MEMBERS = frozenset({"Version", "Id", "Statement"})
_OLD, _NEW = "2008-10-17", "2012-10-17"


@dataclass(frozen=True, slots=True)
class Policy:
    """A document, with those of its statements that deny apart from those that allow."""

    denying: tuple[Statement, ...]
    allowing: tuple[Statement, ...]

    @property
    def statements(self) -> tuple[Statement, ...]:
        """All of them."""
        return self.denying + self.allowing

    def denies(self, request: Request) -> Statement | None:
        """The first statement that denies it."""
        return next((one for one in self.denying if one.reach(request)), None)

    def allows(self, request: Request) -> tuple[Statement, Reach] | None:
        """The first statement that allows it, one that means the caller before one that means the
        caller's account."""
        by_account = None
        for one in self.allowing:
            reach = one.reach(request)
            if reach is Reach.DIRECT:
                return one, reach
            if reach is not None and by_account is None:
                by_account = one, reach
        return by_account


def parse(text: str | bytes, kind: Kind) -> Policy:
    """The policy of a text. Raises Malformed with what is wrong, in words of our own."""
    try:
        document = orjson.loads(text)
    except orjson.JSONDecodeError:
        raise Malformed("a policy must be JSON") from None
    return compile_policy(document, kind)


def compile_policy(document: Any, kind: Kind) -> Policy:
    """The same of what was JSON."""
    statements = tuple(_statements(document, kind))
    return Policy(
        tuple(one for one in statements if one.is_deny),
        tuple(one for one in statements if not one.is_deny),
    )


def _statements(document: Any, kind: Kind) -> Iterator[Statement]:
    if not isinstance(document, dict) or not _MEMBERS.issuperset(document):
        raise Malformed("a policy must be an object of Version, Id and Statement")
    version = document.get("Version", _OLD)
    if version not in (_OLD, _NEW):
        raise Malformed(f"Version must be {_NEW} or {_OLD}")
    if not isinstance(document.get("Id", ""), str):
        raise Malformed("Id must be a text")
    statements = document.get("Statement")
    several = statements if isinstance(statements, list) else [statements]
    sids: set[str] = set()
    for index, members in enumerate(several):
        one = compile_statement(members, index, kind, has_variables=version == _NEW)
        if one.sid and one.sid in sids:
            raise Malformed("two statements have the same Sid")
        sids.add(one.sid)
        yield one
