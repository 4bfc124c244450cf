"""SMS: attributes, opted-out numbers and the sandbox."""

from __future__ import annotations

import re

import pytest

from gateway.operations.caller import Caller
from gateway.operations.engine import Engine
from gateway.operations.topics import sms, sms_sandbox
from gateway.operations.topics.outbox import clear_outbox, find_in_outbox, list_outbox
from gateway.operations.topics.sms_sandbox import (
    CreateSmsSandboxPhoneNumber,
    ListSmsSandboxPhoneNumbers,
    VerifySmsSandboxPhoneNumber,
)
from storage.errors import (
    InvalidParameter,
    OptedOut,
    ResourceNotFound,
    ValidationFailed,
    VerificationFailed,
)
from storage.topics.outbox import OutboxFilter
from tests.operations.conftest import ACCOUNT, REGION

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


async def test_attributes_have_a_default_and_are_merged(engine: Engine, caller: Caller) -> None:
    assert await sms.get_sms_attributes(engine, caller, None) == {"MonthlySpendLimit": "1"}
    wanted = {
        "DefaultSMSType": "Transactional",
        "DefaultSenderID": "Sender1",
        "DeliveryStatusIAMRole": "arn:aws:iam::111122223333:role/r",
        "DeliveryStatusSuccessSamplingRate": "100",
        "UsageReportS3Bucket": "reports",
    }
    for name, value in wanted.items():
        await sms.set_sms_attributes(engine, caller, {name: value})
    found = await sms.get_sms_attributes(engine, caller, [])
    assert found == wanted | {"MonthlySpendLimit": "1"}
    names = ["DefaultSMSType", "Unknown"]
    found = await sms.get_sms_attributes(engine, caller, names)
    assert found == {"DefaultSMSType": "Transactional"}
    await sms.set_sms_attributes(engine, caller, {"DefaultSMSType": "", "MonthlySpendLimit": "9"})
    found = await sms.get_sms_attributes(engine, caller, None)
    assert ("DefaultSMSType" in found, found["MonthlySpendLimit"]) == (False, "9")
    assert await sms.get_sms_attributes(engine, STRANGER, None) == {"MonthlySpendLimit": "1"}


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
        await sms.set_sms_attributes(engine, caller, changes)
    assert str(refused.value) == text
    assert await sms.get_sms_attributes(engine, caller, None) == {"MonthlySpendLimit": "1"}


async def test_no_attributes(engine: Engine, caller: Caller) -> None:
    with pytest.raises(ValidationFailed, match="'attributes'"):
        await sms.set_sms_attributes(engine, caller, None)


async def test_numbers_opt_out_and_in_with_or_without_the_plus(
    engine: Engine, caller: Caller
) -> None:
    assert await sms.check_phone_for_publish(engine, caller, "15550100") == NUMBER
    for _ in range(2):
        await sms.opt_out_phone_number(engine, caller, NUMBER)
    assert await sms.check_if_phone_number_is_opted_out(engine, caller, "15550100")
    assert not await sms.check_if_phone_number_is_opted_out(engine, STRANGER, NUMBER)
    with pytest.raises(OptedOut):
        await sms.check_phone_for_publish(engine, caller, "15550100")
    page = await sms.list_phone_numbers_opted_out(engine, caller, None)
    assert (page.phone_numbers, page.next_token) == ([NUMBER], None)
    for _ in range(2):
        await sms.opt_in_phone_number(engine, caller, "15550100")
    assert not await sms.check_if_phone_number_is_opted_out(engine, caller, NUMBER)


@pytest.mark.parametrize("number", BAD_NUMBERS)
async def test_what_is_no_phone_number(engine: Engine, caller: Caller, number: str) -> None:
    text = "PhoneNumber Reason: input incorrectly formatted"
    for call in (
        sms.check_if_phone_number_is_opted_out,
        sms.opt_in_phone_number,
        sms.opt_out_phone_number,
        sms_sandbox.delete_sms_sandbox_phone_number,
    ):
        with pytest.raises(InvalidParameter, match=text):
            await call(engine, caller, number)
    with pytest.raises(InvalidParameter) as refused:
        await sms.check_phone_for_publish(engine, caller, number)
    wanted = f"Invalid parameter: PhoneNumber Reason: {number} is not valid to publish to"
    assert str(refused.value) == wanted


async def test_number_is_needed(engine: Engine, caller: Caller) -> None:
    with pytest.raises(ValidationFailed, match="'phoneNumber'"):
        await sms.opt_in_phone_number(engine, caller, None)


async def test_opted_out_numbers_have_pages_of_a_hundred(engine: Engine, caller: Caller) -> None:
    numbers = [f"+1555{number:04}" for number in range(101)]
    for number in numbers:
        await sms.opt_out_phone_number(engine, caller, number)
    first = await sms.list_phone_numbers_opted_out(engine, caller, None)
    rest = await sms.list_phone_numbers_opted_out(engine, caller, first.next_token)
    assert [*first.phone_numbers, *rest.phone_numbers] == numbers
    assert (len(first.phone_numbers), rest.next_token) == (100, None)
    for token in ("x", "b3B0ZWQtb3V0OgA=", "a" * 300):
        with pytest.raises(InvalidParameter, match="NextToken"):
            await sms.list_phone_numbers_opted_out(engine, caller, token)


async def add(engine: Engine, caller: Caller, number: str | None = NUMBER, **members: str) -> None:
    request = CreateSmsSandboxPhoneNumber(number, **members)
    await sms_sandbox.create_sms_sandbox_phone_number(engine, caller, request)


async def verify(
    engine: Engine, caller: Caller, password: str | None, number: str = NUMBER
) -> None:
    request = VerifySmsSandboxPhoneNumber(number, password)
    await sms_sandbox.verify_sms_sandbox_phone_number(engine, caller, request)


async def passwords(engine: Engine) -> list[str]:
    """What the outbox has, oldest first."""
    wanted = OutboxFilter(ACCOUNT, REGION, "sms", NUMBER, None, "VerificationCode")
    found = await list_outbox(engine, wanted, after_id=0, limit=100)
    return [re.findall(r"[0-9]{6}", message.body)[0] for message in found.messages]


async def listed(engine: Engine, caller: Caller) -> list[tuple[str, bool]]:
    request = ListSmsSandboxPhoneNumbers()
    page = await sms_sandbox.list_sms_sandbox_phone_numbers(engine, caller, request)
    return [(number.phone_number, number.is_verified) for number in page.numbers]


async def test_number_is_verified_by_the_password_in_the_outbox(
    engine: Engine, caller: Caller
) -> None:
    await add(engine, caller)
    assert await listed(engine, caller) == [(NUMBER, False)]
    [password] = await passwords(engine)
    with pytest.raises(VerificationFailed):
        await verify(engine, caller, str(int(password) ^ 1).zfill(6))
    assert await listed(engine, caller) == [(NUMBER, False)]
    await verify(engine, caller, password)
    assert await listed(engine, caller) == [(NUMBER, True)]


async def test_new_password_replaces_the_old_one_until_the_number_is_verified(
    engine: Engine, caller: Caller
) -> None:
    await add(engine, caller)
    await add(engine, caller, language_code="de-DE")
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
        await sms_sandbox.delete_sms_sandbox_phone_number(engine, STRANGER, NUMBER)
    await sms_sandbox.delete_sms_sandbox_phone_number(engine, caller, NUMBER)
    for refused in (
        sms_sandbox.delete_sms_sandbox_phone_number(engine, caller, NUMBER),
        verify(engine, caller, "123456"),
    ):
        with pytest.raises(ResourceNotFound):
            await refused
    assert await listed(engine, caller) == []


async def test_what_the_sandbox_refuses(engine: Engine, caller: Caller) -> None:
    with pytest.raises(InvalidParameter, match="LanguageCode"):
        await add(engine, caller, language_code="tlh")
    with pytest.raises(ValidationFailed):
        await add(engine, caller, None)
    for password in ("", "1234", "123456789", "abcdef", "\u0661" * 6):
        with pytest.raises(InvalidParameter, match="OneTimePassword"):
            await verify(engine, caller, password)
    with pytest.raises(ValidationFailed, match="'oneTimePassword'"):
        await verify(engine, caller, None)
    await sms.opt_out_phone_number(engine, caller, NUMBER)
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
        request = ListSmsSandboxPhoneNumbers(2, token)
        page = await sms_sandbox.list_sms_sandbox_phone_numbers(engine, caller, request)
        assert len(page.numbers) == size
        found += [number.phone_number for number in page.numbers]
        token = page.next_token
    assert (found, token) == (numbers, None)
    for size in (0, 101, -(2**31)):
        request = ListSmsSandboxPhoneNumbers(size)
        with pytest.raises(InvalidParameter, match="MaxResults"):
            await sms_sandbox.list_sms_sandbox_phone_numbers(engine, caller, request)
    with pytest.raises(InvalidParameter, match="MaxResults"):
        sms_sandbox.check_list_of_origination_numbers(31)


async def test_outbox_is_cleared_of_what_was_written_before(engine: Engine, caller: Caller) -> None:
    for _ in range(3):
        await add(engine, caller)
    await add(engine, caller, "+15550199")
    everything = OutboxFilter(ACCOUNT)
    [message, *_] = (await list_outbox(engine, everything, after_id=0, limit=1)).messages
    assert await find_in_outbox(engine, ACCOUNT, message.outbox_id) == message
    assert await clear_outbox(engine, everything._replace(destination=NUMBER)) == 3
    assert await find_in_outbox(engine, ACCOUNT, message.outbox_id) is None
    assert await clear_outbox(engine, everything) == 1
    assert await clear_outbox(engine, everything) == 0
