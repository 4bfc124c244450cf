"""Tokens of listings."""

from __future__ import annotations

import pytest

from queuegate.protocol.malformed import Malformed
from queuegate.protocol.opaque_tokens import last_of, token_behind


def test_token_says_behind_what_the_next_page_begins() -> None:
    assert last_of("queues", token_behind("queues", "a:b")) == "a:b"
    assert last_of("queues", None) is last_of("queues", "") is None


@pytest.mark.parametrize(
    "token",
    ["x", "é", "=" * 300, token_behind("topics", "a"), token_behind("queues", "")],
)
def test_token_of_another_listing_or_of_nobody_is_refused(token: str) -> None:
    with pytest.raises(Malformed):
        last_of("queues", token)
