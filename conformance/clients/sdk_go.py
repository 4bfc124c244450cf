"""The AWS SDK for Go, version 2."""

from __future__ import annotations

from conformance.environments import DRIVERS, ENVIRONMENTS, Participant, build, program

_SOURCE = DRIVERS / "go"


def _command() -> list[str]:
    folder = ENVIRONMENTS / "conformance-go"
    driver = str(folder / "driver")
    # Not optimised: it is compiled once and runs for seconds.
    compile_it = [program("go"), "build", "-gcflags=all=-N -l", "-ldflags=-s -w", "-o", driver, "."]
    build(folder, [*_SOURCE.iterdir()], [compile_it], _SOURCE)
    return [driver]


PARTICIPANT = Participant(name="go", command=_command, brief=True)
