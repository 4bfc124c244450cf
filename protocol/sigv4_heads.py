"""What the signature of a hot request signs, from the bytes as they were read: a `POST` to a path
that means itself, without a query, in one piece. `protocol.sigv4` has the rules, and judges
whatever takes a closer look.
"""

from hashlib import sha256
from typing import Final

from protocol.sigv4 import ALGORITHM, Credential

_ALGORITHM = ALGORITHM.encode()
_BEFORE_PATH = len(b"POST ")
_AFTER_PATH = len(b" HTTP/1.1")
_DATE = "x-amz-date"
_NEEDED = {"host", _DATE}
# What changes the meaning of a request must be signed, or is signed in its own way.
_TELLING = {b"x-amz-target", b"x-amz-content-sha256"}
_TELLS: Final = -1
# Ten thousand heads are remembered, and clients choose what they sign.
_MOST_KEPT = 16
_LONGEST_KEPT = 256


class SignedHead:
    """The head of an Authorization header, up to its signature: one client sends it all day, and
    most of the headers that it signs, too."""

    __slots__ = (
        "_date_at",
        "_empty",
        "_ignored",
        "_lines",
        "_rest",
        "_scope",
        "_slots",
        "credential",
        "scope",
    )

    def __init__(self, credential: Credential) -> None:
        names = credential.signed_headers.split(";")
        self.credential = credential
        self.scope = credential.date, credential.region, credential.service
        self._slots = {name.encode(): slot for slot, name in enumerate(names)}
        self._lines: dict[bytes, tuple[int, bytes]] = {}
        self._ignored: set[bytes] = set()
        self._date_at = names.index(_DATE) if {*names} >= _NEEDED else None
        self._empty: list[bytes | None] = [None] * len(names)
        self._rest = f"\n\n{credential.signed_headers}\n".encode()
        self._scope = f"\n{credential.scope}\n".encode()

    def string_to_sign(self, data: bytes, end: int) -> tuple[bytes, bytes] | None:
        """The time of signing, and the string to sign; None: this takes a closer look.

        `data` is the request, `end` where its head ends, before the empty line.
        """
        date_at = self._date_at
        if date_at is None:
            return None
        found, lines, ignored = self._empty.copy(), self._lines, self._ignored
        first, *others = data[:end].split(b"\r\n")
        for line in others:
            known = lines.get(line)
            if known is None:
                if line.partition(b":")[0] in ignored:
                    continue
                known = self._read(line)
                if known is None:
                    continue
            slot = known[0]
            # One that is there twice is signed as one.
            if slot == _TELLS or found[slot] is not None:
                return None
            found[slot] = known[1]
        signed = [line for line in found if line is not None]
        if len(signed) != len(found):
            return None
        payload = sha256(memoryview(data)[end + 4 :]).hexdigest()
        canonical = b"POST\n%b\n\n%b%b%b" % (
            first[_BEFORE_PATH:-_AFTER_PATH],
            b"\n".join(signed),
            self._rest,
            payload.encode(),
        )
        date = signed[date_at][len(_DATE) + 1 :]
        hashed = sha256(canonical).hexdigest().encode()
        return date, b"%b\n%b%b%b" % (_ALGORITHM, date, self._scope, hashed)

    def _read(self, line: bytes) -> tuple[int, bytes] | None:
        """The place of a header among those that are signed, and what is signed of it; None: it is
        none of them."""
        written, _, value = line.partition(b":")
        name, value = written.lower(), value.strip()
        slot = self._slots.get(name)
        if slot is None:
            if name in _TELLING:
                return _TELLS, b""
            if len(self._ignored) < _MOST_KEPT and len(written) < _LONGEST_KEPT:
                self._ignored.add(written)
            return None
        if name == b"x-amz-content-sha256" or b"  " in value or b"\t" in value:
            return _TELLS, b""
        known = slot, b"%b:%b" % (name, value)
        if slot != self._date_at and len(line) < _LONGEST_KEPT:
            if len(self._lines) >= _MOST_KEPT:
                self._lines.clear()
            self._lines[line] = known
        return known
