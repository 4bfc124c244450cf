"""Policies of keys: what can be one, as IAM says it (docs/contract/policies.md 5.1)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import orjson

from queuegate.gateway.operations.policy_warnings import warn_of
from queuegate.protocol.errors import Malformed
from queuegate.protocol.policies import Kind, compile_policy
from queuegate.storage.key_errors import KeyDoesNotExist, KeyUnfit, PolicyRefused
from queuegate.storage.keys import keys

if TYPE_CHECKING:
    from queuegate.storage.database import Transaction
    from queuegate.storage.key_model import Key

LONGEST: Final = 6_144
"""Characters of a managed policy of AWS's, where white space between values counts for nothing."""
MOST_READ: Final = 65_536
"""Characters with it."""
_SYNTAX = "Syntax errors in policy."
_WORDS = {
    "a policy of an identity has no Principal": "Policy document should not specify a principal.",
    "a statement needs either Action or NotAction": "Policy statement must contain actions.",
    "a statement needs either Resource or NotResource": "Policy statement must contain resources.",
    "an action must be * or a service with an action": (
        "Actions/Conditions must be prefaced by a vendor, e.g., iam, sdb, ec2, etc."
    ),
    "two statements have the same Sid": ("Statement IDs (SID) in a single policy must be unique."),
}
"""IAM's for what is wrong; of all else it says the same."""


def checked(policy: str | None, *, is_administrator: bool) -> str | None:
    """A policy for a key as it is stored; empty: none. Raises KeyUnfit and PolicyRefused."""
    if not policy:
        return None
    if is_administrator:
        raise KeyUnfit("The key of an administrator may do everything: it has no policy.")
    if len(policy) > MOST_READ:
        raise _too_long()
    try:
        document = orjson.loads(policy)
        compile_policy(document, Kind.IDENTITY)
    except orjson.JSONDecodeError:
        raise _malformed(f"{_SYNTAX} It is no JSON.") from None
    except Malformed as error:
        reason = str(error)
        said = _WORDS.get(reason) or f"{_SYNTAX} {reason[:1].upper()}{reason[1:]}."
        raise _malformed(said) from None
    compact = orjson.dumps(document).decode()
    if len(compact) > LONGEST:
        raise _too_long()
    return compact


async def give(tx: Transaction, key: Key, policy: str) -> Key:
    """The key with this policy, or with an empty text without one. Raises KeyDoesNotExist of
    revoked ones, KeyUnfit and PolicyRefused."""
    stored = checked(policy, is_administrator=key.is_administrator)
    changed = await keys.give_policy(tx, None, key.key_id, stored)
    if changed is None:
        raise KeyDoesNotExist(key.key_id)
    warn_of(policy, Kind.IDENTITY, f"key {changed.name}")
    return changed


def _malformed(text: str) -> PolicyRefused:
    return PolicyRefused(f"MalformedPolicyDocument: {text}")


def _too_long() -> PolicyRefused:
    return PolicyRefused(f"LimitExceeded: Cannot exceed quota for PolicySize: {LONGEST}")
