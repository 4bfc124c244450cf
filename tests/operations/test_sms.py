"""SMS: attributes, opted-out numbers and the sandbox."""

from __future__ import annotations

import re

import pytest

from queuegate.gateway.faces.aws.aws_refusals import (
    InvalidParameter,
    ValidationFailed,
    VerificationFailed,
)
from queuegate.gateway.faces.aws.sns.sns_sms import number_to_publish_to
from queuegate.gateway.operations.access.caller import Caller
from queuegate.gateway.operations.runtime.engine import Engine
from queuegate.gateway.operations.topics import mobile
from queuegate.gateway.operations.topics.mobile import clear_outbox, find_in_outbox, list_outbox
from queuegate.storage.storage_errors import OptedOut, ResourceNotFound
from queuegate.storage.topics.stored_outbox import OutboxFilter
from tests.operations.conftest import ACCOUNT, REGION
from tests.operations.sns_actions import ask

NUMBER = "+15550100"
BAD_NUMBERS = [
    "",
    "+",
    "5",
    "+0123456",
    "+1555010012345678",
    "tel:+1555",
    "+1 555 0100",
    "+1\u0665\u0665",
]
STRANGER = Caller(ACCOUNT, "us-east-1", ACCOUNT)


async def get_attributes(engine: Engine, caller: Caller, names: list[str] | None) -> dict[str, str]:
    found = await ask(engine, caller, "GetSMSAttributes", attributes=names)
    attributes: dict[str, str] = found["attributes"]
    return attributes


async def set_attributes(engine: Engine, caller: Caller, changes: dict[str, str] | None) -> None:
    await ask(engine, caller, "SetSMSAttributes", attributes=changes)


async def is_opted_out(engine: Engine, caller: Caller, number: str | None) -> bool:
    asked = await ask(engine, caller, "CheckIfPhoneNumberIsOptedOut", phoneNumber=number)
    return bool(asked["isOptedOut"])


async def opt_in(engine: Engine, caller: Caller, number: str | None) -> None:
    await ask(engine, caller, "OptInPhoneNumber", phoneNumber=number)


async def opted_out(
    engine: Engine, caller: Caller, token: str | None = None
) -> tuple[list[str], str | None]:
    page = await ask(engine, caller, "ListPhoneNumbersOptedOut", nextToken=token)
    return page["phoneNumbers"], page["nextToken"]


async def delete(engine: Engine, caller: Caller, number: str) -> None:
    await ask(engine, caller, "DeleteSMSSandboxPhoneNumber", PhoneNumber=number)


async def test_attributes_have_a_default_and_are_merged(engine: Engine, caller: Caller) -> None:
    assert await get_attributes(engine, caller, None) == {"MonthlySpendLimit": "1"}
    wanted = {
        "DefaultSMSType": "Transactional",
        "DefaultSenderID": "Sender1",
        "DeliveryStatusIAMRole": "arn:aws:iam::111122223333:role/r",
        "DeliveryStatusSuccessSamplingRate": "100",
        "UsageReportS3Bucket": "reports",
    }
    for name, value in wanted.items():
        await set_attributes(engine, caller, {name: value})
    found = await get_attributes(engine, caller, [])
    assert found == wanted | {"MonthlySpendLimit": "1"}
    names = ["DefaultSMSType", "Unknown"]
    found = await get_attributes(engine, caller, names)
    assert found == {"DefaultSMSType": "Transactional"}
    await set_attributes(engine, caller, {"DefaultSMSType": "", "MonthlySpendLimit": "9"})
    found = await get_attributes(engine, caller, None)
    assert ("DefaultSMSType" in found, found["MonthlySpendLimit"]) == (False, "9")
    assert await get_attributes(engine, STRANGER, None) == {"MonthlySpendLimit": "1"}


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("DefaultSMSType", "Spam", "DefaultSMSType is invalid"),
        ("DefaultSenderID", "123", "DefaultSenderID is invalid"),
        ("DefaultSenderID", "a" * 12, "DefaultSenderID is invalid"),
        (
            "DeliveryStatusSuccessSamplingRate",
            "101",
            "DeliveryStatusSuccessSamplingRate is invalid",
        ),
        ("MonthlySpendLimit", "-1", "MonthlySpendLimit is invalid"),
        ("MonthlySpendLimit", "1\n", "MonthlySpendLimit is invalid"),
        ("Colour", "blue", "Colour is not a valid attribute"),
    ],
)
async def test_wrong_attributes(
    engine: Engine, caller: Caller, name: str, value: str, text: str
) -> None:
    changes = {"DefaultSMSType": "Promotional"} | {name: value}
    with pytest.raises(InvalidParameter) as refused:
        await set_attributes(engine, caller, changes)
    assert str(refused.value) == text
    assert await get_attributes(engine, caller, None) == {"MonthlySpendLimit": "1"}


async def test_numbers_opt_out_and_in_with_or_without_the_plus(
    engine: Engine, caller: Caller
) -> None:
    assert await number_to_publish_to(engine, caller, "15550100") == NUMBER
    for _ in range(2):
        await mobile.opt_out(engine, caller, NUMBER)
    assert await is_opted_out(engine, caller, "15550100")
    assert not await is_opted_out(engine, STRANGER, NUMBER)
    with pytest.raises(OptedOut):
        await number_to_publish_to(engine, caller, "15550100")
    assert await opted_out(engine, caller) == ([NUMBER], None)
    for _ in range(2):
        await opt_in(engine, caller, "15550100")
    assert not await is_opted_out(engine, caller, NUMBER)


@pytest.mark.parametrize("number", BAD_NUMBERS)
async def test_what_is_no_phone_number(engine: Engine, caller: Caller, number: str) -> None:
    text = "PhoneNumber Reason: input incorrectly formatted"
    for call in (
        is_opted_out,
        opt_in,
        delete,
    ):
        with pytest.raises(InvalidParameter, match=text):
            await call(engine, caller, number)
    with pytest.raises(InvalidParameter) as refused:
        await number_to_publish_to(engine, caller, number)
    wanted = f"Invalid parameter: PhoneNumber Reason: {number} is not valid to publish to"
    assert str(refused.value) == wanted


async def test_opted_out_numbers_have_pages_of_a_hundred(engine: Engine, caller: Caller) -> None:
    numbers = [f"+1555{number:04}" for number in range(101)]
    for number in numbers:
        await mobile.opt_out(engine, caller, number)
    first, next_token = await opted_out(engine, caller)
    rest, last_token = await opted_out(engine, caller, next_token)
    assert [*first, *rest] == numbers
    assert (len(first), last_token) == (100, None)
    for token in ("x", "b3B0ZWQtb3V0OgA=", "a" * 300):
        with pytest.raises(InvalidParameter, match="NextToken"):
            await opted_out(engine, caller, token)


async def add(engine: Engine, caller: Caller, number: str | None = NUMBER, **members: str) -> None:
    await ask(engine, caller, "CreateSMSSandboxPhoneNumber", PhoneNumber=number, **members)


async def verify(
    engine: Engine, caller: Caller, password: str | None, number: str = NUMBER
) -> None:
    members = {"PhoneNumber": number, "OneTimePassword": password}
    await ask(engine, caller, "VerifySMSSandboxPhoneNumber", **members)


async def passwords(engine: Engine) -> list[str]:
    """Return the one-time passwords in the outbox, oldest first."""
    wanted = OutboxFilter(ACCOUNT, REGION, "sms", NUMBER, None, "VerificationCode")
    found, _ = await list_outbox(engine, wanted, after_id=0, limit=100)
    return [re.findall(r"[0-9]{6}", message.written.body)[0] for message in found]


async def listed(engine: Engine, caller: Caller) -> list[tuple[str, bool]]:
    page = await ask(engine, caller, "ListSMSSandboxPhoneNumbers")
    return [(one["PhoneNumber"], one["Status"] == "Verified") for one in page["PhoneNumbers"]]


async def test_new_password_replaces_the_old_one_until_the_number_is_verified(
    engine: Engine, caller: Caller
) -> None:
    await add(engine, caller)
    await add(engine, caller, LanguageCode="de-DE")
    first, second = await passwords(engine)
    if first != second:
        with pytest.raises(VerificationFailed):
            await verify(engine, caller, first)
    await verify(engine, caller, second)
    await add(engine, caller)
    assert len(await passwords(engine)) == 2
    assert await listed(engine, caller) == [(NUMBER, True)]


async def test_number_leaves_the_sandbox(engine: Engine, caller: Caller) -> None:
    await add(engine, caller)
    with pytest.raises(ResourceNotFound):
        await delete(engine, STRANGER, NUMBER)
    await delete(engine, caller, NUMBER)
    for refused in (
        delete(engine, caller, NUMBER),
        verify(engine, caller, "123456"),
    ):
        with pytest.raises(ResourceNotFound):
            await refused
    assert await listed(engine, caller) == []


async def test_what_the_sandbox_refuses(engine: Engine, caller: Caller) -> None:
    with pytest.raises(InvalidParameter, match="LanguageCode"):
        await add(engine, caller, LanguageCode="tlh")
    with pytest.raises(ValidationFailed):
        await add(engine, caller, None)
    for password in ("", "1234", "123456789", "abcdef", "\u0661" * 6):
        with pytest.raises(InvalidParameter, match="OneTimePassword"):
            await verify(engine, caller, password)
    with pytest.raises(ValidationFailed, match="'oneTimePassword'"):
        await verify(engine, caller, None)
    await mobile.opt_out(engine, caller, NUMBER)
    with pytest.raises(OptedOut):
        await add(engine, caller)
    assert await listed(engine, caller) == []
    assert await passwords(engine) == []


async def test_sandbox_is_listed_in_pages(engine: Engine, caller: Caller) -> None:
    numbers = [f"+1555{number:04}" for number in range(5)]
    for number in numbers:
        await add(engine, caller, number)
    found: list[str] = []
    token = None
    for size in (2, 2, 1):
        members = {"MaxResults": 2, "NextToken": token}
        page = await ask(engine, caller, "ListSMSSandboxPhoneNumbers", **members)
        assert len(page["PhoneNumbers"]) == size
        found += [one["PhoneNumber"] for one in page["PhoneNumbers"]]
        token = page["NextToken"]
    assert (found, token) == (numbers, None)
    for size in (0, 101, -(2**31)):
        with pytest.raises(InvalidParameter, match="MaxResults"):
            await ask(engine, caller, "ListSMSSandboxPhoneNumbers", MaxResults=size)
    with pytest.raises(InvalidParameter, match="MaxResults"):
        await ask(engine, caller, "ListOriginationNumbers", MaxResults=31)


async def test_outbox_is_cleared_of_what_was_written_before(engine: Engine, caller: Caller) -> None:
    for _ in range(3):
        await add(engine, caller)
    await add(engine, caller, "+15550199")
    everything = OutboxFilter(ACCOUNT)
    [message, *_], _ = await list_outbox(engine, everything, after_id=0, limit=1)
    assert await find_in_outbox(engine, ACCOUNT, message.outbox_id) == message
    assert await clear_outbox(engine, everything._replace(destination=NUMBER)) == 3
    assert await find_in_outbox(engine, ACCOUNT, message.outbox_id) is None
    assert await clear_outbox(engine, everything) == 1
    assert await clear_outbox(engine, everything) == 0
