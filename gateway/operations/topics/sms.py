"""SMS: settings, numbers that opted out, and numbers of a sandbox (docs/contract/sns.md 3.9).

Nothing is sent: messages are in the outbox. Numbers are kept as E.164 writes them, with a plus.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from queuegate.gateway.operations.caller import Caller
from queuegate.gateway.operations.identifiers import new_id
from queuegate.storage.errors import OptedOut
from queuegate.storage.model import NewOutboxMessage
from queuegate.storage.topics import outbox, sms
from queuegate.storage.topics.sms import Namespace, SandboxNumber

if TYPE_CHECKING:
    from queuegate.gateway.operations.engine import Engine

_PASSWORDS = 1_000_000


def _owner(caller: Caller) -> Namespace:
    """Whose numbers a caller works with."""
    return Namespace(caller.account_id, caller.region)


async def attributes(engine: Engine, caller: Caller) -> dict[str, str]:
    """What was set."""
    async with engine.database.transaction() as tx:
        return await sms.attributes(tx, _owner(caller))


async def change_attributes(
    engine: Engine, caller: Caller, changes: Mapping[str, str], unset: Sequence[str]
) -> None:
    """Set ``changes``, forget ``unset``, leave the others."""
    async with engine.database.transaction() as tx:
        await sms.change_attributes(tx, _owner(caller), changes, unset)


async def is_opted_out(engine: Engine, caller: Caller, number: str) -> bool:
    """Whether that number wants no messages."""
    async with engine.database.transaction() as tx:
        return await sms.is_opted_out(tx, _owner(caller), number)


async def opt_in(engine: Engine, caller: Caller, number: str) -> None:
    """Messages for the number again, at any time. One that has not opted out is fine."""
    async with engine.database.transaction() as tx:
        await sms.opt_in(tx, _owner(caller), number)


async def opt_out(engine: Engine, caller: Caller, number: str) -> None:
    """No messages for the number: in place of its owner, who cannot answer STOP here."""
    async with engine.database.transaction() as tx:
        await sms.opt_out(tx, _owner(caller), number)


async def list_opted_out(
    engine: Engine, caller: Caller, *, after_number: str, limit: int
) -> list[str]:
    """Numbers that opted out, in byte order."""
    async with engine.database.transaction() as tx:
        return await sms.list_opted_out(tx, _owner(caller), after_number=after_number, limit=limit)


async def check_wants_messages(engine: Engine, caller: Caller, number: str) -> None:
    """Raises OptedOut."""
    if await is_opted_out(engine, caller, number):
        raise OptedOut(f"The phone number {number} has opted out of receiving SMS messages")


async def add_sandbox_number(
    engine: Engine, caller: Caller, number: str, *, language_code: str
) -> None:
    """Add a number and send it a one-time password: to the outbox, as kind VerificationCode.

    A number that waits for its verification gets a new password; one that is verified stays so and
    gets none.
    """
    password = f"{secrets.randbelow(_PASSWORDS):06}"
    message = NewOutboxMessage(
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
    async with engine.database.transaction() as tx:
        is_pending = await sms.add_sandbox_number(
            tx, _owner(caller), number, language_code=language_code, one_time_password=password
        )
        if is_pending:
            await outbox.insert(tx, engine.clock.of(caller.account_id).now(), [message])


async def verify_sandbox_number(
    engine: Engine, caller: Caller, number: str, password: str
) -> bool | None:
    """Whether that is the password that the number was sent; None: there is no such number."""
    async with engine.database.transaction() as tx:
        return await sms.verify_sandbox_number(tx, _owner(caller), number, password)


async def delete_sandbox_number(engine: Engine, caller: Caller, number: str) -> bool:
    """Forget the number; False when there is none."""
    async with engine.database.transaction() as tx:
        return await sms.delete_sandbox_number(tx, _owner(caller), number)


async def list_sandbox_numbers(
    engine: Engine, caller: Caller, *, after_number: str, limit: int
) -> list[SandboxNumber]:
    """Numbers of the sandbox in byte order."""
    async with engine.database.transaction() as tx:
        return await sms.list_sandbox_numbers(
            tx, _owner(caller), after_number=after_number, limit=limit
        )
