"""Temporary credentials: access keys that name their account, and the content of session tokens.

An access key has the form of AWS's: 80 bits in base 32 after ``ASIA``. The account's number takes
40 bits, in the same place as on AWS. The last 20 bits are a check, which tells our keys from AWS's.
"""

import re
from base64 import b32decode, b32encode
from hashlib import sha256
from typing import NamedTuple

import orjson

from queuegate.protocol.arns import user_arn
from queuegate.protocol.malformed import Malformed

_PREFIX = "ASIA"
_ACCESS_KEY = re.compile(r"ASIA([A-Z2-7]{16})").fullmatch
_CHECK_BITS = 20
_ENTROPY_BITS = 19
_MOST_ACCOUNTS = 10**12
_ROLE_ARN = re.compile(r"arn:[a-z-]{1,20}:iam::([0-9]{12}):role/((?:[!-~]*/)?[\w+=,.@-]{1,64})")
_ROLE_ID_LETTERS = 17


def access_key_of(account_id: str, entropy: int) -> str:
    """Return an access key of this account with 19 bits of ``entropy``."""
    head = (1 << 40 | int(account_id)) << _ENTROPY_BITS | entropy % (1 << _ENTROPY_BITS)
    return _PREFIX + b32encode((head << _CHECK_BITS | _check(head)).to_bytes(10)).decode()


def account_of(access_key: str) -> str | None:
    """Return the account of a temporary access key; None: it is none of ours."""
    found = _ACCESS_KEY(access_key)
    if found is None:
        return None
    number = int.from_bytes(b32decode(found[1]))
    head, check = number >> _CHECK_BITS, number % (1 << _CHECK_BITS)
    account = (head >> _ENTROPY_BITS) % (1 << 40)
    is_ours = check == _check(head) and account < _MOST_ACCOUNTS
    return f"{account:012}" if is_ours else None


def _check(head: int) -> int:
    return int.from_bytes(sha256(b"queuegate%d" % head).digest()) % (1 << _CHECK_BITS)


def role_of(arn: str) -> tuple[str, str] | None:
    """Return the account and the role, with its path, of an ARN; None: it is no role's."""
    found = _ROLE_ARN.fullmatch(arn)
    return found and (found[1], found[2])


class Session(NamedTuple):
    """The content of a session token."""

    account_id: str
    role: str
    """With its path; empty: the session is a user's (GetSessionToken)."""
    name: str
    """Of the session or, for a user's session, the user."""
    expires_at: int
    """In seconds since 1970."""
    key_id: int = 0
    """Of the key that started the session; 0: none of ours."""
    secret_mark: str = ""
    """Mark of that key's secret: the session ends when the secret is rotated away."""
    policies: tuple[str, ...] = ()
    """Every policy must allow an action in the session."""

    @property
    def role_arn(self) -> str:
        """Return the ARN of the role; empty without one."""
        return f"arn:aws:iam::{self.account_id}:role/{self.role}" if self.role else ""

    @property
    def arn(self) -> str:
        """Return the ARN that GetCallerIdentity shows."""
        if not self.role:
            return user_arn(self.account_id, self.name)
        role = self.role.rpartition("/")[2]
        return f"arn:aws:sts::{self.account_id}:assumed-role/{role}/{self.name}"

    @property
    def user_id(self) -> str:
        """Return the id that GetCallerIdentity shows, and receivers as SenderId."""
        if not self.role:
            return self.account_id
        digest = b32encode(sha256(self.role_arn.encode()).digest()).decode()
        return f"AROA{digest[:_ROLE_ID_LETTERS]}:{self.name}"

    def dumped(self) -> bytes:
        """Return the text that ``loaded`` reads."""
        return orjson.dumps([*self])


def loaded(text: bytes) -> Session:
    """Return the session of a text. Raises Malformed."""
    try:
        found = Session(*orjson.loads(text))
        found = found._replace(policies=tuple(found.policies))
    except (ValueError, TypeError):
        raise Malformed("The token is none of a session.") from None
    texts = (found.account_id, found.role, found.name, found.secret_mark, *found.policies)
    if not all(isinstance(one, str) for one in texts):
        raise Malformed("The token is none of a session.")
    return found
