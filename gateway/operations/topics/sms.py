"""SMS: attributes, numbers that opted out, and the check of Publish (docs/contract/sns.md 3.9).

Nothing is sent: messages are in the outbox. Numbers are kept as E.164 writes them, with a plus.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gateway.operations.caller import Caller
from gateway.operations.topics.pages import last_of
from gateway.operations.topics.push_platforms import shown
from protocol import phone_numbers
from protocol.names import invalid_characters
from protocol.page_tokens import token_behind
from storage.errors import InvalidParameter, OptedOut, ValidationFailed
from storage.topics import sms
from storage.topics.sms import Namespace

if TYPE_CHECKING:
    from gateway.operations.engine import Engine

_DEFAULTS = {"MonthlySpendLimit": "1"}
_PATTERNS = {
    "DefaultSMSType": re.compile("Promotional|Transactional"),
    "DefaultSenderID": re.compile("(?=.*[A-Za-z])[A-Za-z0-9]{1,11}"),
    "DeliveryStatusIAMRole": re.compile(r"arn:[!-~]{1,2000}"),
    "DeliveryStatusSuccessSamplingRate": re.compile("[0-9]{1,2}|100"),
    "MonthlySpendLimit": re.compile("[0-9]{1,9}"),
    "UsageReportS3Bucket": re.compile("[a-z0-9.-]{3,63}"),
}
_LISTING = "opted-out"


def owner_of(caller: Caller) -> Namespace:
    """Whose numbers a caller works with."""
    return Namespace(caller.account_id, caller.region)


async def set_sms_attributes(
    engine: Engine, caller: Caller, attributes: Mapping[str, str] | None
) -> None:
    """Set these attributes and leave the others; "" unsets one.

    Raises ValidationFailed and InvalidParameter, whose texts have no usual beginning here.
    """
    if not attributes:
        raise ValidationFailed("attributes")
    for name, value in attributes.items():
        if name not in _PATTERNS:
            raise InvalidParameter(f"{shown(name)} is not a valid attribute", prefix="")
        if value and _PATTERNS[name].fullmatch(value) is None:
            raise InvalidParameter(f"{name} is invalid", prefix="")
    changes = {name: value for name, value in attributes.items() if value}
    unset = [name for name, value in attributes.items() if not value]
    async with engine.database.transaction() as tx:
        await sms.change_attributes(tx, owner_of(caller), changes, unset)


async def get_sms_attributes(
    engine: Engine, caller: Caller, names: Sequence[str] | None
) -> dict[str, str]:
    """The attributes of these names that have a value; without names all of them."""
    async with engine.database.transaction() as tx:
        found = _DEFAULTS | await sms.attributes(tx, owner_of(caller))
    return {name: value for name, value in found.items() if not names or name in names}


def checked_number(phone_number: str | None, member: str = "phoneNumber") -> str:
    """The number in one form. Raises ValidationFailed and InvalidParameter."""
    if phone_number is None:
        raise ValidationFailed(member)
    number = phone_numbers.canonical(phone_number)
    if number is None:
        raise InvalidParameter("PhoneNumber Reason: input incorrectly formatted")
    return number


async def check_if_phone_number_is_opted_out(
    engine: Engine, caller: Caller, phone_number: str | None
) -> bool:
    """Raises the refusals of numbers."""
    number = checked_number(phone_number)
    async with engine.database.transaction() as tx:
        return await sms.is_opted_out(tx, owner_of(caller), number)


async def opt_in_phone_number(engine: Engine, caller: Caller, phone_number: str | None) -> None:
    """Messages for the number again, at any time; AWS allows it once in thirty days.

    One that has not opted out is fine. Raises the refusals of numbers.
    """
    number = checked_number(phone_number)
    async with engine.database.transaction() as tx:
        await sms.opt_in(tx, owner_of(caller), number)


async def opt_out_phone_number(engine: Engine, caller: Caller, phone_number: str) -> None:
    """No messages for the number from now on: in place of its owner, who cannot answer STOP here.

    Raises the refusals of numbers.
    """
    number = checked_number(phone_number)
    async with engine.database.transaction() as tx:
        await sms.opt_out(tx, owner_of(caller), number)


@dataclass(frozen=True, slots=True)
class NumberPage:
    """``next_token`` None: there are no more."""

    phone_numbers: list[str]
    next_token: str | None


async def list_phone_numbers_opted_out(
    engine: Engine, caller: Caller, next_token: str | None
) -> NumberPage:
    """Numbers that opted out, in byte order. Raises InvalidParameter."""
    after = number_behind(_LISTING, next_token)
    size = engine.limits.sns_page
    async with engine.database.transaction() as tx:
        found = await sms.list_opted_out(tx, owner_of(caller), after_number=after, limit=size + 1)
    token = token_behind(_LISTING, found[size - 1]) if len(found) > size else None
    return NumberPage(found[:size], token)


def number_behind(listing: str, token: str | None) -> str:
    """The last number of the page before; "" without a token. Raises InvalidParameter."""
    last = last_of(listing, token)
    if invalid_characters(last):
        raise InvalidParameter("NextToken")
    return last


async def check_phone_for_publish(engine: Engine, caller: Caller, phone_number: str) -> str:
    """The number that a message goes to, in one form. Raises InvalidParameter and OptedOut."""
    number = phone_numbers.canonical(phone_number)
    if number is None:
        raise InvalidParameter(
            f"PhoneNumber Reason: {shown(phone_number)} is not valid to publish to"
        )
    async with engine.database.transaction() as tx:
        is_opted_out = await sms.is_opted_out(tx, owner_of(caller), number)
    if is_opted_out:
        raise OptedOut(f"The phone number {number} has opted out of receiving SMS messages")
    return number
