"""Pages of listings of EventBridge Scheduler: the texts of their refusals are its own."""

from __future__ import annotations

from queuegate.gateway.faces.aws.limits import AWS
from queuegate.protocol import page_tokens
from queuegate.protocol.errors import Malformed
from queuegate.storage.schedule_errors import ScheduleInvalid

_INVALID = "Invalid NextToken."
_LARGEST_ID = (1 << 31) - 1


def page_size(max_results: int | None) -> int:
    """How many entries a page has; MaxResults itself keeps its rule already."""
    return AWS.schedules_page if max_results is None else max_results


def last_of(listing: str, token: str | None) -> str | None:
    """``page_tokens.last_of``. Raises ScheduleInvalid."""
    try:
        return page_tokens.last_of(listing, token)
    except Malformed:
        raise ScheduleInvalid(_INVALID) from None


def token_behind(group_id: int, name: str) -> str:
    """The next page of schedules begins behind this one."""
    return page_tokens.token_behind("schedules", f"{group_id}/{name}")


def place_behind(token: str | None) -> tuple[int, str]:
    """What ``token_behind`` was given; (0, "") without a token. Raises ScheduleInvalid."""
    last = last_of("schedules", token)
    if last is None:
        return 0, ""
    digits, _, name = last.partition("/")
    is_id = len(digits) <= 10 and digits.isascii() and digits.isdigit()
    if not is_id or int(digits) > _LARGEST_ID or not name:
        raise ScheduleInvalid(_INVALID)
    return int(digits), name
