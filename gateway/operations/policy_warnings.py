"""Warnings about policies when they are set: condition keys that no request has here, and members
that are given twice."""

from __future__ import annotations

import logging
import re
from typing import Final

import orjson

from queuegate.protocol.policies import Kind, parse

_log = logging.getLogger("queuegate.policies")

OF_TAGS: Final = "aws:resourcetag/"
_KNOWN_KEYS = frozenset(
    {
        "aws:currenttime",
        "aws:epochtime",
        "aws:multifactorauthage",
        "aws:multifactorauthpresent",
        "aws:principalaccount",
        "aws:principalarn",
        "aws:principalisawsservice",
        "aws:principalservicename",
        "aws:principaltype",
        "aws:requestedregion",
        "aws:resourceaccount",
        "aws:securetransport",
        "aws:sourceaccount",
        "aws:sourcearn",
        "aws:sourceip",
        "aws:sourceowner",
        "aws:tokenissuetime",
        "aws:useragent",
        "aws:username",
        "aws:viaawsservice",
        "sns:endpoint",
        "sns:protocol",
    }
)
"""Condition keys that requests have here, if they have them on AWS."""
_NAME = re.compile(r'"\s*:')
"""The end of a member's name."""


def absent_keys(text: str, kind: Kind) -> str:
    """Return a phrase about the condition keys of a policy that no request has here; empty: each
    has a value. Raises Malformed."""
    statements = parse(text, kind).statements
    keys = {one.key for statement in statements for one in statement.conditions} - _KNOWN_KEYS
    absent = ", ".join(sorted(key for key in keys if not key.startswith(OF_TAGS)))
    return f"asks for {absent}, which is never there" if absent else ""


def warn_of(text: str | None, kind: Kind, of: str) -> None:
    """Log a line for each thing in a policy that was set which may not do what its author means.

    ``text`` is a policy as it was given, which can be read; None or empty: none was set. ``of``
    names what has it.
    """
    if not text:
        return
    absent = absent_keys(text, kind)
    if absent:
        _log.warning("The policy of %s %s.", of, absent)
    if len(_NAME.findall(text)) > len(_NAME.findall(orjson.dumps(orjson.loads(text)).decode())):
        _log.warning("The policy of %s has a member twice: the last one counts.", of)
