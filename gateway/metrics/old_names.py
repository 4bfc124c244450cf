"""Names of metrics before all of ours began with ``queuegate_``. They go with the next version.

A page repeats renamed metrics under their old names, unless it is large: both names of 1,000 queues
would take 2 MB."""

from __future__ import annotations

import logging
import re

from queuegate.gateway.log_lines import RateLimitedLogger

_log = logging.getLogger("queuegate.metrics")
_too_large = RateLimitedLogger(3600.0)

_PREFIX = "queuegate_"
_MOST_BYTES = 750_000
_ENDINGS = re.compile(r"_(?:total|bucket|sum|count)$")
_FAMILY = re.compile(rb"^(?=# HELP )", re.MULTILINE)
_LINE = re.compile(rb"^((?:# (?:HELP|TYPE) )?)queuegate_", re.MULTILINE)

_OLD_NAME = re.compile(
    "http_(requests|request_duration|connections_active)|db_pool|queue_(messages_(sent|received|"
    "deleted|redelivered)|message_|depth|in_flight|oldest_age_|coalescer|delivery|schedule)"
)


def renamed(names: frozenset[str]) -> frozenset[str]:
    """Return the present names of those that are old."""
    return frozenset(_PREFIX + name for name in names if _OLD_NAME.match(name))


def with_old_names(page: bytes, names: frozenset[str], *, repeats: bool | None) -> bytes:
    """Return a page with renamed families under both names, or if there are ``names``, under those.

    ``repeats`` None: if the page without old names has at most 750 kB.
    """
    if repeats is False or (names and not renamed(names) and not repeats):
        return page
    if not names and repeats is None and len(page) > _MOST_BYTES:
        _too_large.warn(_log, "/metrics is too large for old names of metrics: see ?names=old")
        return page
    kept: list[bytes] = []
    asked = {_family_of(name) for name in names}
    for family in _FAMILY.split(page):
        name = _family_of(family[7:].split(b" ", 1)[0].decode())
        old = name.removeprefix(_PREFIX)
        if not asked or name in asked:
            kept.append(family)
        if _OLD_NAME.match(old) and (repeats or not asked or old in asked):
            kept.append(_LINE.sub(rb"\1", family))
    return b"".join(kept)


def _family_of(name: str) -> str:
    return _ENDINGS.sub("", name)
