"""The `queuegate` command without a process of its own."""

from __future__ import annotations

import contextlib
import io
import os
import subprocess

import pytest

from queuegate.gateway.cli import main
from tests.cli.processes import environment


def call(*arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    """Run the command to its end in this process, which saves the 0.2 s that another one takes to
    begin. Not for commands that serve, or start a PostgreSQL: run by root, they become another."""
    printed, complained = io.StringIO(), io.StringIO()
    with (
        pytest.MonkeyPatch.context() as patch,
        contextlib.redirect_stdout(printed),
        contextlib.redirect_stderr(complained),
    ):
        patch.setattr(os, "environ", environment(**more))
        try:
            code = main(arguments)
        except SystemExit as left:
            code = int(str(left.code))
    return subprocess.CompletedProcess(arguments, code, printed.getvalue(), complained.getvalue())
