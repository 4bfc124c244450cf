"""The boto3 of today, which speaks JSON; it is among the development requirements."""

from __future__ import annotations

import sys

from conformance.environments import DRIVERS, Participant

PARTICIPANT = Participant(
    name="boto3",
    command=lambda: [sys.executable, str(DRIVERS / "boto3_driver.py")],
)
