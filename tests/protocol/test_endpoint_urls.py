"""Web hooks with a user and a password in their URL."""

from __future__ import annotations

import pytest

from queuegate.protocol.urls import is_basic, without_password


@pytest.mark.parametrize(
    ("endpoint", "shown"),
    [
        ("https://me:secret@hooks.example/a", "https://me:****@hooks.example/a"),
        ("http://me:se:cr%40et@hooks.example", "http://me:****@hooks.example"),
        ("http://:secret@[::1]:8080/?a=b@c:d#e", "http://:****@[::1]:8080/?a=b@c:d#e"),
        ("https://me:@hooks.example/", "https://me:****@hooks.example/"),
        ("https://me@hooks.example/", "https://me@hooks.example/"),
        ("https://hooks.example:8443/a:b@c", "https://hooks.example:8443/a:b@c"),
        ("https://hooks.example:8443?a:b@c", "https://hooks.example:8443?a:b@c"),
        ("reader@example.com", "reader@example.com"),
        ("arn:aws:sqs:us-east-1:111122223333:orders", "arn:aws:sqs:us-east-1:111122223333:orders"),
    ],
)
def test_only_the_password_is_hidden(endpoint: str, shown: str) -> None:
    assert without_password(endpoint) == shown


@pytest.mark.parametrize(
    "given", ["me", "me:", "me:secret", ":secret", "me:a:b", "m%40e:%E2%81%84"]
)
def test_user_info(given: str) -> None:
    assert is_basic(given) == ("%E2" not in given)


@pytest.mark.parametrize("given", ["", ":", "a@b", "a%3Ab:c", "%FF:a", "a:%E2%82%AC"])
def test_user_info_that_no_header_can_carry(given: str) -> None:
    assert not is_basic(given)
