"""The aws command line, version 1. A process for each call: it runs only the cases marked brief."""

from __future__ import annotations

from conformance.environments import DRIVERS, Participant, python_environment

PARTICIPANT = Participant(
    name="aws-cli",
    command=lambda: [python_environment("conformance-cli"), str(DRIVERS / "aws_cli_driver.py")],
    brief=True,
)
