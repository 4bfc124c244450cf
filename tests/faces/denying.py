"""A gateway that refuses one access key everything, by its authority or by the policy of the key,
and writes down what it was asked for it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from queuegate.gateway import audit_lines, cli
from queuegate.gateway.operations.access.caller import Caller
from queuegate.gateway.operations.access.policies import PolicyChecks
from queuegate.gateway.operations.runtime.engine import Engine
from queuegate.gateway.process import assembly
from queuegate.protocol.policy_patterns import Context
from queuegate.storage.model import Topic
from queuegate.storage.queue_model import Queue
from queuegate.storage.storage_errors import AccessDenied, AuthorizationError
from tests.faces.audited import AuditFile
from tests.faces.servers import Server

DENIED = "AKIADENIED"
_ASKED = "TESTS_ASKED_FILE"
_BY_POLICY = "TESTS_DENIED_BY_POLICY"


class Denying(Server):
    """``file`` gets a line for each question about the key: the action and the resource."""

    def __init__(self, account: str, file: Path, *, by_policy: bool) -> None:
        self._file = file
        self.audit = AuditFile(file.parent)
        self.reason = "policy" if by_policy else "right"
        more = {_ASKED: str(file)} | ({_BY_POLICY: "true"} if by_policy else {})
        more["QUEUEGATE_AUDIT"] = str(self.audit.path)
        super().__init__(QUEUEGATE_ACCOUNTS=f"{DENIED}={account}", **more)

    def command(self) -> list[str]:
        return [sys.executable, "-m", "tests.faces.denying", "serve"]

    def asked(self) -> list[tuple[str, str]]:
        """(action, ARN) since it was last asked for."""
        lines = self._file.read_text().splitlines() if self._file.exists() else []
        self._file.unlink(missing_ok=True)
        return [(action, arn) for action, _, arn in (line.partition(" ") for line in lines)]


def _note(action: str, arn: str) -> None:
    with Path(os.environ[_ASKED]).open("a") as file:
        file.write(f"{action} {arn}\n")


class _Authority:
    def check(self, caller: Caller, action: str, arn: str) -> None:
        if caller.access_key == DENIED:
            _note(action, arn)
            raise AccessDenied(f"{action} on {arn} is not for you.")


class _Noting(PolicyChecks):
    def check(
        self, caller: Caller, right: str, resource: Queue | Topic, about: Context | None = None
    ) -> None:
        try:
            super().check(caller, right, resource, about)
        except (AccessDenied, AuthorizationError):
            _note(right, resource.arn)
            raise

    def check_absent(self, caller: Caller, right: str, arn: str, owner_id: str) -> None:
        try:
            super().check_absent(caller, right, arn, owner_id)
        except (AccessDenied, AuthorizationError):
            _note(right, arn)
            raise

    def check_key(self, caller: Caller, right: str, arn: str) -> None:
        try:
            super().check_key(caller, right, arn)
        except (AccessDenied, AuthorizationError):
            _note(right, arn)
            raise


def _noting(engine: Engine) -> PolicyChecks:
    policies = _Noting(engine.clock, enforces=True)
    nothing = '{"Statement":[]}'
    policies.policy_of = lambda caller: nothing if caller.access_key == DENIED else None
    return policies


if __name__ == "__main__":
    if _BY_POLICY in os.environ:
        assembly.policies_of = lambda _, engine: _noting(engine)
    else:
        assembly.authority_of = lambda _: _Authority()
    # More than anybody asks at once.
    audit_lines._MOST_DIFFERENT = 10_000
    sys.exit(cli.main())
