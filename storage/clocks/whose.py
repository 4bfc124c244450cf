"""The account filter of workers: accounts may have their own clocks, and a statement has one."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple


class AccountFilter(NamedTuple):
    """Rows of these accounts, or of all but these, as the last two parameters of a statement."""

    account_ids: Collection[str] = ()
    are_chosen: bool = False


ALL_ACCOUNTS = AccountFilter()
