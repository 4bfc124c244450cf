"""The SMS sandbox: phone numbers and the one-time passwords that verify them.

No account is in the sandbox here: messages may go to every number, because none is sent. The
numbers can be kept all the same, for clients that manage them.
"""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gateway.operations.caller import Caller
from gateway.operations.identifiers import new_id
from gateway.operations.topics.sms import checked_number, number_behind, owner_of
from protocol.page_tokens import token_behind
from storage.errors import (
    InvalidParameter,
    OptedOut,
    ResourceNotFound,
    ValidationFailed,
    VerificationFailed,
)
from storage.model import NewOutboxMessage
from storage.topics import outbox, sms
from storage.topics.sms import SandboxNumber

if TYPE_CHECKING:
    from gateway.operations.engine import Engine

IS_IN_SANDBOX = False

_LANGUAGES = frozenset(
    {
        "de-DE",
        "en-GB",
        "en-US",
        "es-419",
        "es-ES",
        "fr-CA",
        "fr-FR",
        "it-IT",
        "ja-JP",
        "kr-KR",
        "pt-BR",
        "zh-CN",
        "zh-TW",
    }
)
_ONE_TIME_PASSWORD = re.compile("[0-9]{5,8}")
_PASSWORDS = 1_000_000
_MOST_ORIGINATION_NUMBERS = 30
_LISTING = "sandbox"


@dataclass(frozen=True, slots=True)
class CreateSmsSandboxPhoneNumber:
    phone_number: str | None
    language_code: str | None = None


async def create_sms_sandbox_phone_number(
    engine: Engine, caller: Caller, request: CreateSmsSandboxPhoneNumber
) -> None:
    """Add a number and send it a one-time password: to the outbox, as kind VerificationCode.

    A number that waits for its verification gets a new password; one that is verified stays so and
    gets none. Raises ValidationFailed, InvalidParameter and OptedOut.
    """
    number = checked_number(request.phone_number)
    language_code = request.language_code or "en-US"
    if language_code not in _LANGUAGES:
        raise InvalidParameter("LanguageCode")
    owner = owner_of(caller)
    password = f"{secrets.randbelow(_PASSWORDS):06}"
    async with engine.database.transaction() as tx:
        if await sms.is_opted_out(tx, owner, number):
            raise OptedOut(f"The phone number {number} has opted out of receiving SMS messages")
        is_pending = await sms.add_sandbox_number(
            tx, owner, number, language_code=language_code, one_time_password=password
        )
        if is_pending:
            message = _verification(caller, number, password)
            await outbox.insert(tx, engine.clock.of(caller.account_id).now(), [message])


def _verification(caller: Caller, number: str, password: str) -> NewOutboxMessage:
    return NewOutboxMessage(
        account_id=caller.account_id,
        region=caller.region,
        protocol="sms",
        destination=number,
        kind="VerificationCode",
        topic_arn=None,
        subscription_arn=None,
        message_id=new_id(),
        subject=None,
        body=f"Your verification code is {password}",
        attributes=None,
    )


@dataclass(frozen=True, slots=True)
class VerifySmsSandboxPhoneNumber:
    phone_number: str | None
    one_time_password: str | None


async def verify_sms_sandbox_phone_number(
    engine: Engine, caller: Caller, request: VerifySmsSandboxPhoneNumber
) -> None:
    """Verify a number by the password that it was sent.

    Raises ValidationFailed, InvalidParameter, ResourceNotFound and VerificationFailed.
    """
    number = checked_number(request.phone_number)
    password = request.one_time_password
    if password is None:
        raise ValidationFailed("oneTimePassword")
    if _ONE_TIME_PASSWORD.fullmatch(password) is None:
        raise InvalidParameter("OneTimePassword Reason: must be 5 to 8 digits")
    async with engine.database.transaction() as tx:
        is_right = await sms.verify_sandbox_number(tx, owner_of(caller), number, password)
    if is_right is None:
        raise _missing_number()
    if not is_right:
        raise VerificationFailed("The one-time password is invalid")


def _missing_number() -> ResourceNotFound:
    return ResourceNotFound("The phone number does not exist in the SMS sandbox")


async def delete_sms_sandbox_phone_number(
    engine: Engine, caller: Caller, phone_number: str | None
) -> None:
    """Forget the number. Raises ResourceNotFound and the refusals of numbers."""
    number = checked_number(phone_number)
    async with engine.database.transaction() as tx:
        if not await sms.delete_sandbox_number(tx, owner_of(caller), number):
            raise _missing_number()


@dataclass(frozen=True, slots=True)
class ListSmsSandboxPhoneNumbers:
    max_results: int | None = None
    next_token: str | None = None


@dataclass(frozen=True, slots=True)
class SandboxPage:
    """``next_token`` None: there are no more."""

    numbers: list[SandboxNumber]
    next_token: str | None


async def list_sms_sandbox_phone_numbers(
    engine: Engine, caller: Caller, request: ListSmsSandboxPhoneNumbers
) -> SandboxPage:
    """Numbers in byte order. Raises InvalidParameter."""
    size = _page_size(request.max_results, engine.limits.sns_page)
    after = number_behind(_LISTING, request.next_token)
    async with engine.database.transaction() as tx:
        found = await sms.list_sandbox_numbers(
            tx, owner_of(caller), after_number=after, limit=size + 1
        )
    token = token_behind(_LISTING, found[size - 1].phone_number) if len(found) > size else None
    return SandboxPage(found[:size], token)


def check_list_of_origination_numbers(max_results: int | None) -> None:
    """Nobody has origination numbers here; the request must be right all the same."""
    _page_size(max_results, _MOST_ORIGINATION_NUMBERS)


def _page_size(max_results: int | None, most: int) -> int:
    if max_results is None:
        return most
    if not 1 <= max_results <= most:
        raise InvalidParameter(f"MaxResults Reason: must be between 1 and {most}")
    return max_results
