"""One key for all processes, made once; what it signs; and keys that an operator supplies."""

from __future__ import annotations

import asyncio
import base64
import re
import threading
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import rsa

from queuegate.gateway.operations.topics import message_signing
from queuegate.gateway.operations.topics.message_signing import (
    EnvelopeSigner,
    key_from_pem,
    make_key,
)
from queuegate.protocol import sns_envelopes
from queuegate.storage.database import Database
from queuegate.storage.storage_errors import Unavailable
from queuegate.storage.topics import stored_topics
from queuegate.storage.topics.stored_topics import SigningKey
from tests.protocol.certificates import certificate_of, pem_of
from tests.waiting import yield_turns

MakeSigner = Callable[..., EnvelopeSigner]
MESSAGE = {
    "Type": "Notification",
    "MessageId": "22b80b92-fdea-4c2c-8f9d-bdfb0c7bf324",
    "TopicArn": "arn:aws:sns:us-east-1:123456789012:MyTopic",
    "Message": "zażółć",
    "Timestamp": "2026-11-21T10:00:00.000Z",
}
DATA = sns_envelopes.string_to_sign(MESSAGE)


@pytest.fixture
async def make_signer(database: Database) -> AsyncIterator[MakeSigner]:
    """``make_signer()``: one as each process has it, on the same database."""
    made = []

    def make(on: Database = database, **options: str | SigningKey) -> EnvelopeSigner:
        made.append(EnvelopeSigner(on, **options))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for signer in made:
        await signer.close()


@pytest.fixture
def supplied() -> SigningKey:
    """A key as it comes from the files of an operator."""
    private_key = rsa.generate_private_key(65537, 2048)
    return key_from_pem(pem_of(private_key).encode(), certificate_of(private_key).encode())


async def stored(database: Database) -> list[SigningKey]:
    async with database.transaction() as tx:
        return await stored_topics.stored_signing_keys(tx)


def verifies(signer: EnvelopeSigner, version: str, signature: str) -> bool:
    envelope = MESSAGE | {"SignatureVersion": version, "Signature": signature}
    return sns_envelopes.verify(signer.certificate_pem, envelope)


# The key


async def test_the_first_call_makes_a_key_and_the_next_finds_it(
    make_signer: MakeSigner, database: Database
) -> None:
    first = make_signer()
    assert first.loaded_fingerprint is None
    await first.ready()
    assert re.fullmatch(r"[0-9a-f]{32}", first.fingerprint)
    assert first.loaded_fingerprint == first.fingerprint
    await first.close()
    # A process that starts later.
    second = make_signer()
    await second.ready()
    assert second.certificate_pem == first.certificate_pem
    assert second.sign("1", DATA) == first.sign("1", DATA)
    [key] = await stored(database)
    assert key.fingerprint == first.fingerprint


async def test_processes_that_start_together_agree_on_one_key(
    make_signer: MakeSigner, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each has found no key, and made one, before any of them stores its own."""
    together = threading.Barrier(3)

    def make_together(region: str) -> SigningKey:
        key = make_key(region)
        together.wait(30)
        return key

    monkeypatch.setattr(
        "queuegate.gateway.operations.topics.message_signing.make_key", make_together
    )
    signers = [make_signer() for _ in range(3)]
    await asyncio.gather(*[signer.ready() for signer in signers])
    assert len({signer.fingerprint for signer in signers}) == 1
    assert len({signer.sign("2", DATA) for signer in signers}) == 1
    assert len(await stored(database)) == 1


async def test_callers_at_the_same_time_share_one_load(
    make_signer: MakeSigner, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []

    def make_and_count(region: str) -> SigningKey:
        made.append(region)
        return make_key(region)

    monkeypatch.setattr(
        "queuegate.gateway.operations.topics.message_signing.make_key", make_and_count
    )
    signer = make_signer(region="eu-west-1")
    callers = [asyncio.create_task(signer.ready()) for _ in range(5)]
    await yield_turns()
    # One that goes away takes nothing from the others.
    callers[0].cancel()
    await asyncio.gather(*callers[1:])
    assert made == ["eu-west-1"]


async def test_the_next_call_tries_again_when_the_database_was_away(
    make_signer: MakeSigner, database_dsn: str
) -> None:
    database = Database(database_dsn)
    signer = make_signer(database)
    for _ in range(2):
        with pytest.raises(Unavailable):
            await signer.ready()
    with pytest.raises(Unavailable):
        await signer.sign_many([("1", DATA)])
    with pytest.raises(Unavailable):
        await signer.certificate("0" * 32)
    await database.open()
    await signer.ready()
    await database.close()
    assert verifies(signer, "1", signer.sign("1", DATA))


async def test_a_signer_that_is_not_ready_says_so(make_signer: MakeSigner) -> None:
    signer = make_signer()
    with pytest.raises(RuntimeError, match="not ready"):
        signer.sign("1", DATA)
    with pytest.raises(RuntimeError, match="not ready"):
        print(signer.fingerprint)


async def test_a_signer_closes_at_any_time(make_signer: MakeSigner) -> None:
    signer = make_signer()
    await signer.close()
    caller = asyncio.create_task(signer.ready())
    await yield_turns()
    await signer.close()
    with pytest.raises(asyncio.CancelledError):
        await caller


def test_a_new_certificate_names_the_host_of_sns_for_twenty_years() -> None:
    key = make_key("eu-west-1")
    assert key.private_key_pem is not None
    assert key.private_key_pem not in repr(key)
    certificate = x509.load_pem_x509_certificate(key.certificate_pem.encode())
    [name] = certificate.subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)
    assert name.value == "sns.eu-west-1.amazonaws.com"
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == [name.value, "sns.amazonaws.com"]
    now = datetime.now(UTC)
    assert certificate.not_valid_before_utc < now
    assert certificate.not_valid_after_utc > now + timedelta(days=19 * 365)
    certificate.verify_directly_issued_by(certificate)


def test_the_longest_region_still_gets_a_certificate() -> None:
    certificate = x509.load_pem_x509_certificate(make_key("x" * 64).certificate_pem.encode())
    [name] = certificate.subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)
    assert name.value == "sns.amazonaws.com"


# Signatures


@pytest.mark.parametrize("version", ["1", "2"])
async def test_signatures_verify_with_the_certificate(
    make_signer: MakeSigner, version: str
) -> None:
    signer = make_signer()
    await signer.ready()
    signature = signer.sign(version, DATA)
    assert len(base64.b64decode(signature, validate=True)) == 256
    assert verifies(signer, version, signature)
    assert await signer.sign_many([(version, DATA)]) == [signature]


async def test_many_are_signed_in_order(make_signer: MakeSigner) -> None:
    signer = make_signer()
    items = [(version, str(number).encode()) for number in range(20) for version in ("1", "2")]
    signatures = await signer.sign_many([*items, *items[:3]])
    assert signatures == [signer.sign(*item) for item in [*items, *items[:3]]]
    assert len(set(signatures)) == len(items)
    assert await signer.sign_many([]) == []


async def test_what_was_signed_is_remembered(
    make_signer: MakeSigner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A publish to a hundred web hooks signs one text, whether they come together or in turn."""
    signed = []
    sign = sns_envelopes.sign

    def sign_and_count(private_key: rsa.RSAPrivateKey, version: str, data: bytes) -> str:
        signed.append((version, data))
        return sign(private_key, version, data)

    monkeypatch.setattr(sns_envelopes, "sign", sign_and_count)
    signer = make_signer()
    results = await asyncio.gather(*[signer.sign_many([("1", DATA)]) for _ in range(100)])
    assert results == [[signer.sign("1", DATA)]] * 100
    assert signed == [("1", DATA)]
    assert signer.sign("2", DATA) != signer.sign("1", DATA)
    assert signed == [("1", DATA), ("2", DATA)]
    # The one that was used last stays; the others make room.
    await signer.sign_many([("1", str(number).encode()) for number in range(1022)])
    signer.sign("1", DATA)
    signer.sign("1", b"one more")
    signed.clear()
    signer.sign("1", DATA)
    assert signed == []
    signer.sign("2", DATA)
    assert signed == [("2", DATA)]


async def test_a_caller_who_goes_away_takes_no_signature_from_others(
    make_signer: MakeSigner, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go_on = threading.Event(), threading.Event()
    sign = sns_envelopes.sign

    def sign_later(private_key: rsa.RSAPrivateKey, version: str, data: bytes) -> str:
        begun.set()
        go_on.wait(30)
        return sign(private_key, version, data)

    signer = make_signer()
    await signer.ready()
    monkeypatch.setattr(sns_envelopes, "sign", sign_later)
    callers = [asyncio.create_task(signer.sign_many([("1", DATA)])) for _ in range(2)]
    await asyncio.to_thread(begun.wait, 30)
    callers[0].cancel()
    await yield_turns()
    go_on.set()
    [signature] = await callers[1]
    assert verifies(signer, "1", signature)
    assert callers[0].cancelled()


# Keys that are supplied, and certificates of keys that signed before


async def test_a_supplied_key_signs_instead_of_the_stored_one(
    make_signer: MakeSigner, supplied: SigningKey, database: Database
) -> None:
    before = make_signer()
    await before.ready()
    signer = make_signer(supplied=supplied)
    await signer.ready()
    assert signer.fingerprint == supplied.fingerprint != before.fingerprint
    assert verifies(signer, "2", signer.sign("2", DATA))
    assert not verifies(before, "2", signer.sign("2", DATA))
    # Its certificate is stored, its private key is not.
    [own, kept] = await stored(database)
    assert own.fingerprint == before.fingerprint
    assert kept == SigningKey(supplied.fingerprint, supplied.certificate_pem)
    after = make_signer()
    await after.ready()
    assert after.fingerprint == before.fingerprint


async def test_certificates_of_earlier_keys_stay_to_be_had(
    make_signer: MakeSigner, supplied: SigningKey
) -> None:
    before, unused = make_signer(), make_signer()
    await before.ready()
    signer = make_signer(supplied=supplied)
    await signer.ready()
    for asked in (signer, before, unused):
        assert await asked.certificate(supplied.fingerprint) == supplied.certificate_pem
        assert await asked.certificate(before.fingerprint) == before.certificate_pem
        assert await asked.certificate("0" * 32) is None


async def test_a_supplied_key_needs_no_other(
    make_signer: MakeSigner, supplied: SigningKey, database: Database
) -> None:
    for _ in range(2):
        signer = make_signer(supplied=supplied)
        await signer.ready()
        assert [key.private_key_pem for key in await stored(database)] == [None]


async def test_so_many_certificates_are_kept_and_the_own_key_always(database: Database) -> None:
    own = make_key("us-east-1")
    async with database.transaction() as tx:
        await stored_topics.agree_on_signing_key(tx, own)
        for number in range(stored_topics.MOST_CERTIFICATES + 3):
            await stored_topics.remember_signing_key(
                tx, SigningKey(f"{number:032x}", "certificate")
            )
    kept = await stored(database)
    assert kept[0] == own
    assert len(kept) == stored_topics.MOST_CERTIFICATES + 1
    assert kept[1].fingerprint == f"{3:032x}"


def test_a_chain_gives_its_first_certificate(supplied: SigningKey) -> None:
    other = make_key("us-east-1")
    assert supplied.private_key_pem is not None
    chain = (supplied.certificate_pem + other.certificate_pem).encode()
    assert key_from_pem(supplied.private_key_pem.encode(), chain) == supplied
    with pytest.raises(message_signing.NoCertificate):
        key_from_pem(supplied.private_key_pem.encode(), other.certificate_pem.encode())
