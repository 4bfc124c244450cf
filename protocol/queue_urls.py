"""Which queue a URL, a path or a bare name means (docs/contract/protocol.md 1.4)."""

import re
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import unquote

_ACCOUNT = re.compile(r"[0-9]{12}")
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,80}")
_LONGEST = 2048


class QueueAddress(NamedTuple):
    """`account_id` None: the caller's own."""

    account_id: str | None
    name: str


def queue_from_url(url_or_name: str) -> QueueAddress | None:
    """The queue that a QueueUrl parameter means, or None if it cannot mean any.

    Only the last two segments of the path count, so URLs survive proxies, renames and every host
    style: `https://sqs.<region>.amazonaws.com/<account>/<name>`,
    `http://host:port/queue/<region>/<account>/<name>`. A bare name is accepted, as by AWS.
    """
    return _cached_url(url_or_name) if len(url_or_name) <= _LONGEST else None


@lru_cache(maxsize=4096)
def _cached_url(text: str) -> QueueAddress | None:
    _, has_host, rest = text.partition("://")
    if not has_host:
        return _last_two(text)
    _, has_path, path = rest.partition("/")
    return _last_two(path) if has_path else None


def queue_from_path(path: str) -> QueueAddress | None:
    """The queue that a request path names: `/<account>/<name>`,
    `/queue/<region>/<account>/<name>`, `/queue/<name>`.

    Stricter than a QueueUrl: a path with neither an account nor the word `queue` belongs to
    someone else.
    """
    if path == "/" or len(path) > _LONGEST:
        return None
    address = _last_two(path)
    if address is not None and (address.account_id or path.startswith("/queue/")):
        return address
    return None


def _last_two(path: str) -> QueueAddress | None:
    path = path.partition("?")[0].partition("#")[0].strip("/")
    if "%" in path:
        path = unquote(path)
    before, _, name = path.rpartition("/")
    if _NAME.fullmatch(name) is None:
        return None
    parent = before.rpartition("/")[2]
    if _ACCOUNT.fullmatch(parent) is not None:
        return QueueAddress(parent, name)
    return QueueAddress(None, name) if parent in ("", "queue") else None
