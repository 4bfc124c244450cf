"""The AWS SDK for Java, version 2."""

from __future__ import annotations

from conformance.environments import DRIVERS, ENVIRONMENTS, Participant, build, program

_SOURCE = DRIVERS / "java"


def _command() -> list[str]:
    folder = ENVIRONMENTS / "conformance-java"
    libraries, classes = folder / "lib", str(folder / "classes")
    path = f"{libraries}/*"
    commands = [
        [
            program("mvn"),
            "-q",
            "-B",
            "dependency:copy-dependencies",
            f"-DoutputDirectory={libraries}",
        ],
        [program("javac"), "-cp", path, "-d", classes, "Driver.java"],
    ]
    build(folder, [*_SOURCE.iterdir()], commands, _SOURCE)
    # The quicker of its compilers alone: it runs for seconds.
    fast = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Dfile.encoding=UTF-8"]
    return [program("java"), *fast, "-cp", f"{path}:{classes}", "Driver"]


PARTICIPANT = Participant(name="java", command=_command, brief=True)
