"""SNS actions on SMS: attributes, numbers that opted out, and the sandbox (docs/contract/sns.md
3.9).

Messages may go to every number, because none is sent. The sandbox stores its numbers for clients
that manage them.
"""

from __future__ import annotations

import re

from queuegate.gateway.faces.aws.aws_face import AwsCall, Members
from queuegate.gateway.faces.aws.aws_refusals import (
    InvalidParameter,
    VerificationFailed,
)
from queuegate.gateway.faces.aws.aws_rules import AWS
from queuegate.gateway.faces.aws.sns.sns_members import last_of, token_after
from queuegate.gateway.operations.access.caller import Caller
from queuegate.gateway.operations.runtime.engine import Engine
from queuegate.gateway.operations.topics import mobile
from queuegate.protocol import names
from queuegate.protocol.names import invalid_characters, printable
from queuegate.storage.storage_errors import ResourceNotFound

_DEFAULTS = {"MonthlySpendLimit": "1"}
SETTABLE = {
    "DefaultSMSType": re.compile("Promotional|Transactional"),
    "DefaultSenderID": re.compile("(?=.*[A-Za-z])[A-Za-z0-9]{1,11}"),
    "DeliveryStatusIAMRole": re.compile(r"arn:[!-~]{1,2000}"),
    "DeliveryStatusSuccessSamplingRate": re.compile("[0-9]{1,2}|100"),
    "MonthlySpendLimit": re.compile("[0-9]{1,9}"),
    "UsageReportS3Bucket": re.compile("[a-z0-9.-]{3,63}"),
}
LANGUAGES = frozenset(
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


async def set_sms_attributes(call: AwsCall) -> None:
    """Set the given attributes and leave the others; "" unsets one. The refusals lack the usual
    prefix."""
    attributes = call.required("attributes", may_be_empty=False)
    for name, value in attributes.items():
        if name not in SETTABLE:
            raise InvalidParameter(f"{printable(name)} is not a valid attribute", prefix="")
        if value and SETTABLE[name].fullmatch(value) is None:
            raise InvalidParameter(f"{name} is invalid", prefix="")
    changes = {name: value for name, value in attributes.items() if value}
    unset = [name for name, value in attributes.items() if not value]
    await mobile.change_attributes(call.engine, call.caller, changes, unset)


async def get_sms_attributes(call: AwsCall) -> Members:
    """Return the named attributes that have a value; without names all of them."""
    names = call.members.get("attributes")
    found = _DEFAULTS | await mobile.attributes(call.engine, call.caller)
    return {
        "attributes": {name: text for name, text in found.items() if not names or name in names}
    }


def checked_number(phone_number: str) -> str:
    """Return the canonical form of a phone number."""
    number = names.canonical(phone_number)
    if number is None:
        raise InvalidParameter("PhoneNumber Reason: input incorrectly formatted")
    return number


async def number_to_publish_to(engine: Engine, caller: Caller, phone_number: str) -> str:
    """Return the canonical number of a message. Raises InvalidParameter and OptedOut."""
    number = names.canonical(phone_number)
    if number is None:
        raise InvalidParameter(
            f"PhoneNumber Reason: {printable(phone_number)} is not valid to publish to"
        )
    await mobile.check_wants_messages(engine, caller, number)
    return number


async def check_if_phone_number_is_opted_out(call: AwsCall) -> Members:
    number = checked_number(call.required("phoneNumber"))
    return {"isOptedOut": await mobile.is_opted_out(call.engine, call.caller, number)}


async def opt_in_phone_number(call: AwsCall) -> None:
    """Opt a number in, at most once in 30 days as on AWS."""
    await mobile.opt_in(call.engine, call.caller, checked_number(call.required("phoneNumber")))


async def list_phone_numbers_opted_out(call: AwsCall) -> Members:
    size = AWS.topics_page
    after = _number_behind("opted-out", call.members.get("nextToken"))
    found = await mobile.list_opted_out(
        call.engine, call.caller, after_number=after, limit=size + 1
    )
    return {"phoneNumbers": found[:size], "nextToken": token_after("opted-out", found, size)}


def _number_behind(listing: str, token: str | None) -> str:
    """Return the last number of the previous page; "" without a token."""
    last = last_of(listing, token)
    if invalid_characters(last):
        raise InvalidParameter("NextToken")
    return last


async def list_origination_numbers(call: AwsCall) -> Members:
    """Check the request and return an empty list: there are no origination numbers."""
    _page_size(call.members.get("MaxResults"), AWS.origination_numbers_page)
    return {"PhoneNumbers": []}


def _page_size(max_results: int | None, most: int) -> int:
    if max_results is None:
        return most
    if not 1 <= max_results <= most:
        raise InvalidParameter(f"MaxResults Reason: must be between 1 and {most}")
    return max_results


async def get_sms_sandbox_account_status(call: AwsCall) -> Members:
    return {"IsInSandbox": False}


async def create_sms_sandbox_phone_number(call: AwsCall) -> None:
    engine, caller, members = call.engine, call.caller, call.members
    number = checked_number(call.required("PhoneNumber"))
    language_code = members.get("LanguageCode") or "en-US"
    if language_code not in LANGUAGES:
        raise InvalidParameter("LanguageCode")
    await mobile.check_wants_messages(engine, caller, number)
    await mobile.add_sandbox_number(engine, caller, number, language_code=language_code)


async def verify_sms_sandbox_phone_number(call: AwsCall) -> None:
    number = checked_number(call.required("PhoneNumber"))
    password = call.required("OneTimePassword")
    if _ONE_TIME_PASSWORD.fullmatch(password) is None:
        raise InvalidParameter("OneTimePassword Reason: must be 5 to 8 digits")
    is_right = await mobile.verify_sandbox_number(call.engine, call.caller, number, password)
    if is_right is None:
        raise _missing_number()
    if not is_right:
        raise VerificationFailed("The one-time password is invalid")


def _missing_number() -> ResourceNotFound:
    return ResourceNotFound("The phone number does not exist in the SMS sandbox")


async def delete_sms_sandbox_phone_number(call: AwsCall) -> None:
    number = checked_number(call.required("PhoneNumber"))
    if not await mobile.delete_sandbox_number(call.engine, call.caller, number):
        raise _missing_number()


async def list_sms_sandbox_phone_numbers(call: AwsCall) -> Members:
    size = _page_size(call.members.get("MaxResults"), AWS.topics_page)
    after = _number_behind("sandbox", call.members.get("NextToken"))
    found = await mobile.list_sandbox_numbers(
        call.engine, call.caller, after_number=after, limit=size + 1
    )
    listed = [
        {"PhoneNumber": one.phone_number, "Status": "Verified" if one.is_verified else "Pending"}
        for one in found[:size]
    ]
    token = token_after("sandbox", [one.phone_number for one in found], size)
    return {"PhoneNumbers": listed, "NextToken": token}
