"""The password of the bundled PostgreSQL's superuser.

If PostgreSQL runs as the user who starts it, its socket is in a directory that only that user can
enter, and needs no password. If root runs it as another account, processes of that account reach
the socket, too: they need the password, which only root can read.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import secrets
import stat
from pathlib import Path

SUPERUSER = "queuegate"
PASSWORD_FILE = "password"
# Enough for a random password, and the cheapest per connection.
_ITERATIONS = 1
_PASSWORD_BYTES = 32


def new_password() -> str:
    """Return a random password."""
    return secrets.token_hex(_PASSWORD_BYTES)


def known_password(data: Path) -> str | None:
    """Return the password stored in this data directory; None if there is none of ours."""
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        file = os.open(data / PASSWORD_FILE, flags)
    except OSError:
        return None
    try:
        facts = os.fstat(file)
        if not stat.S_ISREG(facts.st_mode) or facts.st_uid != os.geteuid() or facts.st_nlink != 1:
            return None
        text = os.read(file, 4 * _PASSWORD_BYTES).decode("ascii", "replace")
    finally:
        os.close(file)
    return text if len(text) == 2 * _PASSWORD_BYTES else None


def verifier_of(password: str) -> str:
    """Return PostgreSQL's verifier of a password (SCRAM-SHA-256), which does not reveal it."""
    salt = os.urandom(16)
    salted = hashlib.pbkdf2_hmac("sha256", password.encode(), salt, _ITERATIONS)
    stored_key = hashlib.sha256(hmac.digest(salted, b"Client Key", "sha256")).digest()
    server_key = hmac.digest(salted, b"Server Key", "sha256")
    parts = [base64.b64encode(part).decode() for part in (salt, stored_key, server_key)]
    return f"SCRAM-SHA-256${_ITERATIONS}:{parts[0]}${parts[1]}:{parts[2]}"
