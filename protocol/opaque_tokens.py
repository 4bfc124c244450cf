"""Opaque texts that clients return: receipt handles, page tokens, sequence numbers, session tokens
and temporary access keys.

A receipt handle is a prefix of four letters for its kind and version, then URL-safe base64 of the
packed fields and a check. Whole groups of three bytes need no padding, so no character needs
escaping in JSON, XML or a URL. Version 2 checks with a secret, so clients cannot make handles.
Version 1 checked with CRC32, which anybody can compute.

A sequence number has twenty digits of which the first is not zero, like AWS's (docs/contract/sqs.md
2.7). Clients that compare them as texts get the order of the numbers. A temporary access key has
the form of AWS's: 80 bits in base 32 after ``ASIA``. The account takes 40 bits, in the same place
as on AWS. The last 20 bits are a check, which tells our keys from those of AWS.
"""

from __future__ import annotations

import re
from base64 import b32decode, b32encode, urlsafe_b64decode, urlsafe_b64encode
from binascii import a2b_base64, b2a_base64
from collections.abc import Callable
from hashlib import blake2b, sha256
from hmac import compare_digest
from struct import Struct
from typing import NamedTuple
from zlib import crc32

import orjson

from queuegate.protocol import names
from queuegate.protocol.arns import user_arn
from queuegate.protocol.malformed import Malformed

_STANDARD = "QGS"
_FIFO = "QGF"
_PREFIX_LENGTH = 4
_FIELDS = Struct(">IQII")
_CRC = Struct(">I")
_TAG_BYTES = 10
_LONGEST = 1024
_LAST_SEQUENCE = 2**63 - 1
_LAST_COUNT = 2**31 - 1

SECRET_BYTES = 32

_TO_URL = bytes.maketrans(b"+/", b"-_")
# Plain base64 is refused, because a handle has one spelling.
_FROM_URL = bytes.maketrans(b"-_+/", b"+/!!")

_Check = Callable[[bytes], bytes]


class StandardReceipt(NamedTuple):
    queue_id: int
    sequence: int
    receive_count: int
    received_at: int

    @property
    def handle(self) -> tuple[int, str | None, int, int]:
        """Return queue, group, number and count: a message and one receive of it."""
        return self.queue_id, None, self.sequence, self.receive_count


class FifoReceipt(NamedTuple):
    queue_id: int
    group_id: str
    sequence: int
    receive_count: int
    received_at: int

    @property
    def handle(self) -> tuple[int, str | None, int, int]:
        """Return queue, group, number and count: a message and one receive of it."""
        return self.queue_id, self.group_id, self.sequence, self.receive_count


class Handles:
    """Encoder and decoder for the handles of one version; see ``keyed`` and ``unkeyed``."""

    __slots__ = ("_check_bytes", "_check_fifo", "_check_standard", "_fifo", "_length", "_standard")

    def __init__(self, version: int, check_standard: _Check, check_fifo: _Check) -> None:
        # Different prefixes tell the kinds of handles apart.
        self._check_standard = check_standard
        self._check_fifo = check_fifo
        self._check_bytes = len(check_standard(b""))
        self._standard = f"{_STANDARD}{version}"
        self._fifo = f"{_FIFO}{version}"
        self._length = _PREFIX_LENGTH + (_FIELDS.size + self._check_bytes) // 3 * 4

    def encode_standard(
        self, queue_id: int, sequence: int, receive_count: int, received_at: int
    ) -> str:
        """Return 44 characters, 36 in version 1. `received_at` is the second of the receive, at
        which the twelve hours of a message start."""
        fields = _FIELDS.pack(queue_id, sequence, receive_count, received_at)
        encoded = b2a_base64(fields + self._check_standard(fields), newline=False)
        return self._standard + encoded.translate(_TO_URL).decode("ascii")

    def encode_fifo(
        self, queue_id: int, group_id: str, sequence: int, receive_count: int, received_at: int
    ) -> str:
        """Return at most 215 characters for a group id that SQS allows; serial queues have any
        text."""
        fields = _FIELDS.pack(queue_id, sequence, receive_count, received_at) + group_id.encode()
        encoded = b2a_base64(self._check_fifo(fields) + fields, newline=False).translate(_TO_URL)
        return self._fifo + encoded.rstrip(b"=").decode("ascii")

    def decode(self, handle: str) -> StandardReceipt | FifoReceipt:
        """Return the receipt of exactly this handle. Raises Malformed for other texts. Every field
        is in the range of stored values, even with a forged check."""
        if len(handle) == self._length and handle[:_PREFIX_LENGTH] == self._standard:
            raw = _unpacked(handle[_PREFIX_LENGTH:])
            fields = raw[: _FIELDS.size]
            # Three times as fast as by its name.
            receipt = tuple.__new__(StandardReceipt, _FIELDS.unpack(fields))
            _, sequence, receive_count, _ = receipt
            if (
                not compare_digest(self._check_standard(fields), raw[_FIELDS.size :])
                or not 0 < sequence <= _LAST_SEQUENCE
                or not 0 < receive_count <= _LAST_COUNT
            ):
                raise _malformed()
            return receipt
        if len(handle) <= _LONGEST and handle.startswith(self._fifo):
            return self._decode_fifo(handle)
        raise _malformed()

    def _decode_fifo(self, handle: str) -> FifoReceipt:
        text = handle[_PREFIX_LENGTH:]
        raw = _unpacked(text + "=" * (-len(text) % 4))
        check, fields = raw[: self._check_bytes], raw[self._check_bytes :]
        if len(fields) < _FIELDS.size or not compare_digest(self._check_fifo(fields), check):
            raise _malformed()
        queue_id, sequence, receive_count, received_at = _FIELDS.unpack_from(fields)
        try:
            group_id = fields[_FIELDS.size :].decode()
        except UnicodeDecodeError:
            raise _malformed() from None
        receipt = FifoReceipt(queue_id, group_id, sequence, receive_count, received_at)
        if (
            not 0 < sequence <= _LAST_SEQUENCE
            or not 0 < receive_count <= _LAST_COUNT
            or not names.is_text_id(group_id)
            # The last base64 character may have unused bits, but a handle has one spelling.
            or self.encode_fifo(*receipt) != handle
        ):
            raise _malformed()
        return receipt


def keyed(secret: bytes) -> Handles:
    """Return handles that only holders of the secret can make."""
    return Handles(2, _tag(secret, b"standard"), _tag(secret, b"fifo"))


def unkeyed() -> Handles:
    """Return the older handles without a secret."""
    return Handles(1, _crc(b"QGS1"), _crc(b"QGF1"))


def _tag(secret: bytes, kind: bytes) -> _Check:
    # Copying a keyed hash costs half of making one.
    copy = blake2b(digest_size=_TAG_BYTES, key=secret, person=kind).copy

    def tag(fields: bytes) -> bytes:
        state = copy()
        state.update(fields)
        return state.digest()

    return tag


def _crc(kind: bytes) -> _Check:
    seed = crc32(kind)
    return lambda fields: _CRC.pack(crc32(fields, seed))


def _unpacked(text: str) -> bytes:
    try:
        return a2b_base64(text.encode("ascii").translate(_FROM_URL), strict_mode=True)
    except ValueError:
        raise _malformed() from None


def _malformed() -> Malformed:
    return Malformed("The text is not a receipt handle.", kind="receipt")


_MOST_CHARACTERS = 256


def token_behind(listing: str, last: str) -> str:
    """Return the page token of `listing` behind the entry `last`. ASCII texts only."""
    return urlsafe_b64encode(f"{listing}:{last}".encode("ascii")).decode("ascii")


def last_of(listing: str, token: str | None) -> str | None:
    """Return the entry in a page token; None without one. Raises Malformed."""
    if not token:
        return None
    invalid = Malformed("Invalid or expired next token.")
    if len(token) > _MOST_CHARACTERS:
        raise invalid
    try:
        text = urlsafe_b64decode(token.encode("ascii")).decode("ascii")
    except ValueError:
        raise invalid from None
    found, _, last = text.partition(":")
    if found != listing or not last or not last.isprintable():
        raise invalid
    return last


# No number has twelve zeros in a row, so recordings that mask account numbers stay whole.
_QUEUE = 18_849_496_460_467_696_128
_TOPIC = 10_009_496_460_467_696_128


def queue_sequence_number(sequence: int) -> str:
    return str(_QUEUE + sequence)


def topic_sequence_number(sequence: int) -> str:
    """Return the SequenceNumber of a message that was published to a FIFO topic."""
    return str(_TOPIC + sequence)


_PREFIX = "ASIA"
_ACCESS_KEY = re.compile(r"ASIA([A-Z2-7]{16})").fullmatch
_CHECK_BITS = 20
_ENTROPY_BITS = 19
_MOST_ACCOUNTS = 10**12
_ROLE_ARN = re.compile(r"arn:[a-z-]{1,20}:iam::([0-9]{12}):role/((?:[!-~]*/)?[\w+=,.@-]{1,64})")
_ROLE_ID_LETTERS = 17


def access_key_of(account_id: str, entropy: int) -> str:
    """Return an access key of this account with 19 bits of ``entropy``."""
    head = (1 << 40 | int(account_id)) << _ENTROPY_BITS | entropy % (1 << _ENTROPY_BITS)
    return _PREFIX + b32encode((head << _CHECK_BITS | _check(head)).to_bytes(10)).decode()


def account_of(access_key: str) -> str | None:
    """Return the account of a temporary access key; None: it is none of ours."""
    found = _ACCESS_KEY(access_key)
    if found is None:
        return None
    number = int.from_bytes(b32decode(found[1]))
    head, check = number >> _CHECK_BITS, number % (1 << _CHECK_BITS)
    account = (head >> _ENTROPY_BITS) % (1 << 40)
    is_ours = check == _check(head) and account < _MOST_ACCOUNTS
    return f"{account:012}" if is_ours else None


def _check(head: int) -> int:
    return int.from_bytes(sha256(b"queuegate%d" % head).digest()) % (1 << _CHECK_BITS)


def role_of(arn: str) -> tuple[str, str] | None:
    """Return the account and the role, with its path, of an ARN; None: it is no role's."""
    found = _ROLE_ARN.fullmatch(arn)
    return found and (found[1], found[2])


class Session(NamedTuple):
    """The content of a session token."""

    account_id: str
    role: str
    """With its path; empty: the session is a user's (GetSessionToken)."""
    name: str
    """Of the session or, for a user's session, the user."""
    expires_at: int
    """In seconds since 1970."""
    key_id: int = 0
    """Of the key that started the session; 0: none of ours."""
    secret_mark: str = ""
    """Mark of that key's secret: the session ends when the secret is rotated away."""
    policies: tuple[str, ...] = ()
    """Every policy must allow an action in the session."""

    @property
    def role_arn(self) -> str:
        """Return the ARN of the role; empty without one."""
        return f"arn:aws:iam::{self.account_id}:role/{self.role}" if self.role else ""

    @property
    def arn(self) -> str:
        """Return the ARN that GetCallerIdentity shows."""
        if not self.role:
            return user_arn(self.account_id, self.name)
        role = self.role.rpartition("/")[2]
        return f"arn:aws:sts::{self.account_id}:assumed-role/{role}/{self.name}"

    @property
    def user_id(self) -> str:
        """Return the id that GetCallerIdentity shows, and receivers as SenderId."""
        if not self.role:
            return self.account_id
        digest = b32encode(sha256(self.role_arn.encode()).digest()).decode()
        return f"AROA{digest[:_ROLE_ID_LETTERS]}:{self.name}"

    def dumped(self) -> bytes:
        return orjson.dumps([*self])


def loaded(text: bytes) -> Session:
    """Return the session of a text. Raises Malformed."""
    try:
        found = Session(*orjson.loads(text))
        found = found._replace(policies=tuple(found.policies))
    except (ValueError, TypeError):
        raise Malformed("The token is none of a session.") from None
    texts = (found.account_id, found.role, found.name, found.secret_mark, *found.policies)
    if not all(isinstance(one, str) for one in texts):
        raise Malformed("The token is none of a session.")
    return found
