"""Rules that AWS's services share: limits, tags, and policy statements of AddPermission.

These limits protect nothing of ours, but clients know and test them. The limits that protect the
engine are in ``operations``; cool-downs after a purge or a deletion are settings.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from queuegate.protocol import names, policy_documents
from queuegate.protocol.malformed import refusing
from queuegate.storage.storage_errors import InvalidParameterValue, Rejected


@dataclass(frozen=True, slots=True)
class AwsLimits:
    """Limits with their unit in the name (docs/contract/sqs.md 2.1, docs/contract/sns.md 3.2,
    docs/contract/scheduler.md 4.5)."""

    # Batches and messages
    batch_entries: int = 10
    batch_bytes: int = 1_048_576
    batch_entry_id_length: int = 80
    received_messages: int = 10
    message_attributes: int = 10
    attribute_name_length: int = 256

    # Queues
    queues_page: int = 1_000
    policy_bytes: int = 8_192
    permission_actions: int = 7
    redrive_allow_sources: int = 10
    max_receive_count: int = 1_000
    move_rate_per_second: int = 500
    move_handle_length: int = 2_048
    tags: int = 50
    """For a queue or a topic."""

    # Topics
    topics_page: int = 100
    """For all listings of SNS but subscriptions."""
    subscriptions_page: int = 100
    topic_policy_bytes: int = 30_720
    subscription_policy_length: int = 10_240
    display_name_length: int = 100
    topic_archive_days: int = 365
    topic_message_bytes: tuple[int, int] = (1_024, 1_048_576)

    # Mobile push and SMS
    application_name_length: int = 256
    application_secret_length: int = 65_536
    application_value_length: int = 2_048
    device_data_bytes: int = 2_048
    device_token_bytes: int = 2_048
    apple_token_length: int = 400
    origination_numbers_page: int = 30

    # Schedules
    schedules_page: int = 100
    schedule_group_tags: int = 200
    retry_attempts: int = 185
    event_age_seconds: int = 86_400


AWS = AwsLimits()


def invalid_value(name: str, value: object, reason: str) -> InvalidParameterValue:
    """Return SQS's refusal of a value."""
    return InvalidParameterValue(f"Value {value} for parameter {name} is invalid. Reason: {reason}")


def json_object(text: str) -> dict[str, Any] | None:
    """Parse a JSON object; None for other texts."""
    try:
        found = orjson.loads(text)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def dead_letter_of(attributes: Mapping[str, str]) -> str | None:
    """Return the ARN of the dead-letter queue in normalised attributes, if any."""
    policy = attributes.get("RedrivePolicy")
    return orjson.loads(policy)["deadLetterTargetArn"] if policy else None


class AttributeFault(Exception):
    """The reason for refusing a value: the text behind the name of the parameter. ``allowed``: the
    valid values, which AWS's text may not name."""

    def __init__(self, text: str, allowed: str = "") -> None:
        super().__init__(text)
        self.allowed = allowed


AttributeRule = Callable[[str, str], str]
"""Function from the name and the value of an attribute to the value that AWS reads back. Raises
AttributeFault."""


def text_of_length(most: int) -> AttributeRule:
    """Return the rule for a text of at most that many characters."""

    def normalise(name: str, text: str) -> str:
        if len(text) > most or names.invalid_characters(text):
            raise AttributeFault(name, f"0 to {most} characters")
        return text

    return normalise


def one_of(*values: str) -> AttributeRule:
    """Return the rule for a choice of values."""

    def normalise(name: str, text: str) -> str:
        if text not in values:
            text = f"{name}: Invalid value. Please use either {' or '.join(values)}"
            raise AttributeFault(text, " and ".join(values))
        return text

    return normalise


def number_in(least: int, most: int) -> AttributeRule:
    """Return the rule for a whole number in this range."""

    def normalise(name: str, text: str) -> str:
        if not is_number(text, least, most):
            text = f"{name}: Invalid value. Must be between {least} and {most}."
            raise AttributeFault(text, f"{least} to {most}")
        return str(int(text))

    return normalise


def unless_empty(rule: AttributeRule) -> AttributeRule:
    """Return the rule for "", which unsets the attribute, or what the other rule allows."""
    return lambda name, text: rule(name, text) if text else ""


def boolean(name: str, text: str) -> str:
    """Return true or false in lower case."""
    lowered = text.lower()
    if lowered not in ("true", "false"):
        raise AttributeFault(f"{name}: Invalid value. Must be true or false.", "true and false")
    return lowered


def is_number(text: str, least: int, most: int) -> bool:
    """Return True for ASCII digits in this range."""
    # isdigit alone accepts digits of every script; int alone accepts spaces and underscores.
    if not (text.isascii() and text.isdigit() and len(text) <= 10):
        return False
    return least <= int(text) <= most


def policy_of(most_bytes: int, fault: str) -> AttributeRule:
    """Return the rule for a policy (docs/contract/policies.md 5.1), which removes white space
    between its tokens."""

    def normalise(_: str, text: str) -> str:
        with refusing(AttributeFault(fault), ValueError, TypeError, RecursionError):
            document = orjson.loads(text)
            compact = orjson.dumps(document)
        if len(compact) > most_bytes or names.invalid_utf8(compact):
            raise AttributeFault(fault)
        with refusing(AttributeFault(fault)):
            policy_documents.compile_policy(document, policy_documents.PolicyKind.RESOURCE)
        return compact.decode()

    return normalise


TagChange = Callable[[Mapping[str, str]], Mapping[str, str]]
"""Function from the present tags to the wanted ones."""


@dataclass(frozen=True, slots=True)
class TagRules:
    """The maximum number of tags, and the refusals of one service. Tags mean nothing to
    Queuegate."""

    most: int
    too_many: Callable[[], Rejected]
    bad_key: Callable[[], Rejected]
    bad_value: Callable[[], Rejected]
    twice: Callable[[str], Rejected] | None = None
    """Refusal of a repeated key; None: a request cannot repeat a key."""

    def check_count(self, count: int) -> None:
        """Refuse too many tags."""
        if count > self.most:
            raise self.too_many()

    def check_key(self, key: str) -> None:
        """Refuse an invalid key."""
        if not names.is_tag_key(key):
            raise self.bad_key()

    def checked(self, given: Iterable[tuple[str, str]]) -> dict[str, str]:
        """Return valid tags in the given order."""
        tags: dict[str, str] = {}
        for key, value in given:
            self.check_key(key)
            if not names.is_tag_value(value):
                raise self.bad_value()
            if self.twice is not None and key in tags:
                raise self.twice(key)
            tags[key] = value
        return tags

    def adding(self, added: Mapping[str, str]) -> TagChange:
        """Return a change that adds tags and replaces the values of present keys. Keys are
        case-sensitive."""

        def change(tags: Mapping[str, str]) -> Mapping[str, str]:
            merged = {**tags, **added}
            self.check_count(len(merged))
            return merged

        return change


def removing(keys: Iterable[str]) -> TagChange:
    """Return a change that removes keys. Absent keys are ignored."""
    removed = frozenset(keys)
    return lambda tags: {key: value for key, value in tags.items() if key not in removed}


_ACCOUNT = re.compile(r"[0-9]{12}")
_ACCOUNT_OR_ARN = re.compile(r"[0-9]{12}|arn:aws[a-z-]{0,20}:iam::[0-9]{12}:[!-)+->@-~]{1,512}")

PolicyDocument = dict[str, Any]


def is_principal(text: str) -> bool:
    """Return True for an account, or a user or role of one. Wildcards may not stand for the
    account."""
    return _ACCOUNT_OR_ARN.fullmatch(text) is not None


def permission_statement(
    label: str, account_ids: Sequence[str], actions: Sequence[str], resource: str
) -> dict[str, Any]:
    """Return the statement that AddPermission writes: one value as a scalar, several as an array.

    Actions have their service, as in ``SQS:SendMessage`` (docs/contract/sqs.md 2.9,
    docs/contract/sns.md 3.3).
    """
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


def read_policy(text: str) -> PolicyDocument:
    """Return a policy with its statements as a list."""
    policy: PolicyDocument = orjson.loads(text)
    statements = policy.get("Statement", [])
    policy["Statement"] = statements if isinstance(statements, list) else [statements]
    return policy


def without_label(policy: PolicyDocument, label: str) -> PolicyDocument | None:
    """Return the policy without the statements of that label; None: there are none."""
    kept = [one for one in policy["Statement"] if _label(one) != label]
    return None if len(kept) == len(policy["Statement"]) else {**policy, "Statement": kept}


def _label(one: object) -> object:
    return one.get("Sid") if isinstance(one, dict) else None
