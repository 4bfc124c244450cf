"""Errors of keys and rate limits (``storage.errors``)."""

from __future__ import annotations

from queuegate.storage.errors import Kind, Rejected


class KeyDoesNotExist(Rejected):
    """The caller's account has no key of that number."""

    kind = Kind.ABSENT

    def __init__(self, key_id: int) -> None:
        super().__init__(f"There is no key {key_id}.")


class KeyExists(Rejected):
    """A key of the account that was not revoked has that name."""

    kind = Kind.EXISTS

    def __init__(self, name: str) -> None:
        super().__init__(f"There is a key '{name}': revoke it, or call the new one otherwise.")


class TooManyKeys(Rejected):
    """Every gateway caches all keys, so their number is limited."""

    kind = Kind.LIMIT

    def __init__(self, most: int) -> None:
        super().__init__(f"There are {most} keys that were not revoked, which is the limit.")


class TooManyRequests(Rejected):
    """A producer is over its rate limit, or an account or key over its limit of requests."""

    kind = Kind.THROTTLED

    def __init__(self, retry_after_seconds: int, limit: str = "rate limit of the key") -> None:
        super().__init__(f"This is more than the {limit} allows. Retry in {retry_after_seconds} s.")
        self.retry_after_seconds = retry_after_seconds


class QuotaReached(Rejected):
    """The account is at its limit of queues or logs."""

    kind = Kind.LIMIT


class TopicLimitExceeded(Rejected):
    """The account is at its limit of topics."""

    kind = Kind.LIMIT


class KeyUnfit(Rejected):
    """The request does not fit this kind of key, or this gateway."""

    kind = Kind.INVALID


class PolicyRefused(Rejected):
    """An invalid policy of a key. The text begins with AWS's code."""

    kind = Kind.INVALID


class UnrecognizedClient(Rejected):
    """An unknown key of our format: wrong, disabled, revoked or expired."""

    kind = Kind.FORBIDDEN

    def __init__(self, text: str = "") -> None:
        super().__init__(
            text or "The key is none of this gateway's: it is wrong, revoked or expired."
        )


class InvalidSignature(Rejected):
    """A signature by another key or for another request, or an old one."""

    kind = Kind.FORBIDDEN


class ExpiredToken(Rejected):
    """The session of temporary credentials has ended."""

    kind = Kind.FORBIDDEN

    def __init__(self) -> None:
        super().__init__("The security token included in the request is expired")


class MalformedPolicyDocument(Rejected):
    """An invalid session policy."""

    kind = Kind.INVALID


class PackedPolicyTooLarge(Rejected):
    """The session policies exceed the size of a token."""

    kind = Kind.INVALID

    def __init__(self, percent: int) -> None:
        super().__init__(
            f"Packed policy consumes {percent}% of allotted space, please use smaller policy."
        )


class InvalidIdentityToken(Rejected):
    """A token of an unknown identity provider."""

    kind = Kind.INVALID
