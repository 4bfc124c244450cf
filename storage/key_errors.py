"""What can go wrong with keys and the limits of their rates (``storage.errors``)."""

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
    """All gateways remember every key, so there may only be so many."""

    kind = Kind.LIMIT

    def __init__(self, most: int) -> None:
        super().__init__(f"There are {most} keys that were not revoked, which is the limit.")


class TooManyRequests(Rejected):
    """A producer has reached the limit of its rate, or an account or key that of its requests."""

    kind = Kind.THROTTLED

    def __init__(self, retry_after_seconds: int, limit: str = "rate limit of the key") -> None:
        super().__init__(f"This is more than the {limit} allows. Retry in {retry_after_seconds} s.")
        self.retry_after_seconds = retry_after_seconds


class QuotaReached(Rejected):
    """The account has as many queues or logs as it may."""

    kind = Kind.LIMIT


class TopicLimitExceeded(Rejected):
    """The account has as many topics as it may."""

    kind = Kind.LIMIT


class KeyUnfit(Rejected):
    """What is asked does not go with this kind of key, or with this gateway."""

    kind = Kind.INVALID


class PolicyRefused(Rejected):
    """What is no policy of a key. The text begins with AWS's code."""

    kind = Kind.INVALID


class UnrecognizedClient(Rejected):
    """What looks like a key of ours and is none: it is wrong, disabled or revoked, or has
    expired."""

    kind = Kind.FORBIDDEN

    def __init__(self, text: str = "") -> None:
        super().__init__(
            text or "The key is none of this gateway's: it is wrong, revoked or expired."
        )


class InvalidSignature(Rejected):
    """The signature is not that of the key's owner, not of this request, or too old."""

    kind = Kind.FORBIDDEN


class ExpiredToken(Rejected):
    """The session of temporary credentials has ended."""

    kind = Kind.FORBIDDEN

    def __init__(self) -> None:
        super().__init__("The security token included in the request is expired")


class MalformedPolicyDocument(Rejected):
    """The policy of a session is none."""

    kind = Kind.INVALID


class PackedPolicyTooLarge(Rejected):
    """The policies of a session are longer than a token holds."""

    kind = Kind.INVALID

    def __init__(self, percent: int) -> None:
        super().__init__(
            f"Packed policy consumes {percent}% of allotted space, please use smaller policy."
        )


class InvalidIdentityToken(Rejected):
    """A token of an identity provider that the gateway does not know."""

    kind = Kind.INVALID
