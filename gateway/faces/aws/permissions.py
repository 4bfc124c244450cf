"""Statements of policies of queues and topics, as AddPermission writes and RemovePermission finds
them (docs/contract/sqs.md 2.9, docs/contract/sns.md 3.3)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import orjson

_ACCOUNT = re.compile(r"[0-9]{12}")
_ACCOUNT_OR_ARN = re.compile(r"[0-9]{12}|arn:aws[a-z-]{0,20}:iam::[0-9]{12}:[!-)+->@-~]{1,512}")

Policy = dict[str, Any]


def is_principal(text: str) -> bool:
    """Whether it can be an account, or a user or role of one; wildcards stand for no part of it."""
    return _ACCOUNT_OR_ARN.fullmatch(text) is not None


def statement(
    label: str, account_ids: Sequence[str], actions: Sequence[str], resource: str
) -> dict[str, Any]:
    """The statement as AWS writes it: one value as a scalar, several as an array. Actions with
    their service, as in ``SQS:SendMessage``."""
    principals = [
        f"arn:aws:iam::{account_id}:root" if _ACCOUNT.fullmatch(account_id) else account_id
        for account_id in account_ids
    ]
    return {
        "Sid": label,
        "Effect": "Allow",
        "Principal": {"AWS": _scalar_or_list(principals)},
        "Action": _scalar_or_list(actions),
        "Resource": resource,
    }


def _scalar_or_list(values: Sequence[str]) -> str | Sequence[str]:
    return values[0] if len(values) == 1 else values


def read(text: str) -> Policy:
    """A policy with its statements as a list."""
    policy: Policy = orjson.loads(text)
    statements = policy.get("Statement", [])
    policy["Statement"] = statements if isinstance(statements, list) else [statements]
    return policy


def without(policy: Policy, label: str) -> Policy | None:
    """The policy without the statements of that label; None: there are none."""
    kept = [one for one in policy["Statement"] if _label(one) != label]
    return None if len(kept) == len(policy["Statement"]) else {**policy, "Statement": kept}


def _label(one: object) -> object:
    return one.get("Sid") if isinstance(one, dict) else None
