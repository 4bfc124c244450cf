"""A gateway that refuses one access key everything, and writes down what it was asked for it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from gateway import cli
from gateway.operations.caller import Caller
from gateway.process import assembly
from storage.errors import AccessDenied
from tests.faces.servers import Server

DENIED = "AKIADENIED"
_ASKED = "TESTS_ASKED_FILE"


class Denying(Server):
    """``file`` gets a line for each question about the key: the action and the resource."""

    def __init__(self, account: str, file: Path) -> None:
        self._file = file
        super().__init__(QUEUEGATE_ACCOUNTS=f"{DENIED}={account}", **{_ASKED: str(file)})

    def command(self) -> list[str]:
        return [sys.executable, "-m", "tests.faces.denying", "serve"]

    def asked(self) -> list[tuple[str, str]]:
        """(action, ARN) since it was last asked for."""
        lines = self._file.read_text().splitlines() if self._file.exists() else []
        self._file.unlink(missing_ok=True)
        return [(action, arn) for action, _, arn in (line.partition(" ") for line in lines)]


class _Authority:
    def check(self, caller: Caller, action: str, arn: str) -> None:
        if caller.access_key == DENIED:
            with Path(os.environ[_ASKED]).open("a") as file:
                file.write(f"{action} {arn}\n")
            raise AccessDenied(f"{action} on {arn} is not for you.")


if __name__ == "__main__":
    assembly.authority_of = lambda _: _Authority()
    sys.exit(cli.main())
