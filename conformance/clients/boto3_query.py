"""boto3 1.34.89: the last release before 1.34.90 went over to JSON for good."""

from __future__ import annotations

from conformance.environments import DRIVERS, Participant, python_environment

PARTICIPANT = Participant(
    name="boto3-1.34.89",
    command=lambda: [
        python_environment("conformance-query"),
        str(DRIVERS / "boto3_driver.py"),
    ],
)
