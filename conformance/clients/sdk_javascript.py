"""The AWS SDK for JavaScript, version 3."""

from __future__ import annotations

import subprocess

from conformance import node
from conformance.environments import DRIVERS, NotInstalled, Participant, program

_SOURCE = DRIVERS / "javascript"


def _command() -> list[str]:
    npm, runs = program("npm"), program("node")
    try:
        node.install(npm, _SOURCE)
    except subprocess.SubprocessError as error:
        raise NotInstalled(f"its packages could not be installed: {error}") from None
    # It looks for packages where it lies itself.
    packages = node.packages(_SOURCE)
    quiet = "AWS_SDK_JS_NODE_VERSION_SUPPORT_WARNING_DISABLED=true"
    return [program("env"), f"NODE_PATH={packages}", quiet, runs, str(_SOURCE / "driver.cjs")]


PARTICIPANT = Participant(name="javascript", command=_command, brief=True)
