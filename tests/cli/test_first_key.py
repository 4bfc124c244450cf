"""Requirements of a gateway that verifies signatures, and the first key that it creates."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import databases
from tests.cli.calling import call
from tests.cli.processes import PATIENCE_SECONDS, Gateway, environment
from tests.faces.signing import MASTER_KEY, Verifying

ANOTHER = "ab" * 32


@pytest.fixture
def dsn() -> Iterator[str]:
    made = databases.of_this_process().copy()
    yield made
    databases.of_this_process().drop(made)


def refusal(*arguments: str, **more: str) -> str:
    """The one line that it ends with."""
    done = subprocess.run(
        [sys.executable, "-m", "queuegate", "serve", "--port", "0", *arguments],
        env=environment(QUEUEGATE_LOG_LEVEL="error", **more),
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert (done.returncode in (1, 2), done.stdout) == (True, "")
    assert done.stderr.startswith("queuegate: ")
    assert done.stderr.count("\n") == 1
    return done.stderr


def test_no_start_without_a_master_key(tmp_path: Path) -> None:
    sigv4 = {"QUEUEGATE_AUTH": "sigv4"}
    said = call("serve", **sigv4).stderr
    assert "QUEUEGATE_MASTER_KEY_FILE" in said
    file = tmp_path / "key"
    for content, text in ((None, "cannot be read"), ("secret words", "is not 32 bytes")):
        if content is not None:
            file.write_text(content)
        said = call("serve", **sigv4, QUEUEGATE_MASTER_KEY_FILE=str(file)).stderr
        assert (str(file) in said, text in said, said.count("\n")) == (True, True, 1)
        assert "secret words" not in said
    said = call("serve", **sigv4, QUEUEGATE_MASTER_KEY="secret words").stderr
    assert ("(value hidden)" in said, "secret words" in said) == (True, False)
    both = {"QUEUEGATE_MASTER_KEY": ANOTHER, "QUEUEGATE_MASTER_KEY_FILE": str(file)}
    assert "exclude each other" in call("serve", **both).stderr


def test_the_first_key_goes_into_a_private_file_once(dsn: str, tmp_path: Path) -> None:
    """Three starts, the second with the key of the first."""
    with Verifying(tmp_path, dsn=dsn):
        pass
    with Verifying(tmp_path, dsn=dsn) as gateway:
        assert gateway.first.sqs("ListQueues").status == 200
        file = tmp_path / "administrator"
        assert file.stat().st_mode & 0o777 == 0o600
        assert gateway.first.secret not in gateway.printed
        assert "everything" in gateway.keys("list")
        assert len(gateway.keys("list").splitlines()) == 2
    # A master key that is not that of the database, or none, is noticed before anything is served.
    database = {"DATABASE_URL": dsn, "QUEUEGATE_AUTH": "sigv4"}
    assert "is not the key" in refusal("--workers", "2", **database, QUEUEGATE_MASTER_KEY=ANOTHER)
    made = call("keys", "create", "x", "--access", DATABASE_URL=dsn, QUEUEGATE_MASTER_KEY=ANOTHER)
    assert (made.returncode, "not the one" in made.stderr) == (1, True)


def test_a_file_that_cannot_be_written_makes_no_key(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    made = databases.of_this_process().copy()
    settings = {
        "DATABASE_URL": made,
        "QUEUEGATE_AUTH": "sigv4",
        "QUEUEGATE_MASTER_KEY": MASTER_KEY,
        "QUEUEGATE_ADMINISTRATOR_KEY_FILE": str(tmp_path / "file" / "below"),
    }
    assert "--administrator" in refusal(**settings)
    listed = call("keys", "list", "--all", DATABASE_URL=made)
    databases.of_this_process().drop(made)
    assert listed.stdout == "No keys.\n"


def test_a_terminal_shows_it(tmp_path: Path) -> None:
    made = databases.of_this_process().copy()
    ours, theirs = pty.openpty()
    settings = {
        "DATABASE_URL": made,
        "QUEUEGATE_AUTH": "sigv4",
        "QUEUEGATE_MASTER_KEY": MASTER_KEY,
        "QUEUEGATE_DATA_DIR": str(tmp_path),
    }
    process = subprocess.Popen(
        [sys.executable, "-m", "queuegate", "serve", "--port", "0"],
        env=environment(**settings),
        stdout=theirs,
        stderr=subprocess.DEVNULL,
    )
    os.close(theirs)
    shown = b""
    while b"ready:" not in shown:
        shown += os.read(ours, 4096)
    process.terminate()
    process.wait(PATIENCE_SECONDS)
    os.close(ours)
    databases.of_this_process().drop(made)
    assert b"AWS_ACCESS_KEY_ID=AKQG" in shown
    assert b"AWS_SECRET_ACCESS_KEY=" in shown
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize("master", [{"QUEUEGATE_MASTER_KEY": MASTER_KEY}, {}])
def test_with_ephemeral_data_it_goes_when_they_go(tmp_path: Path, master: dict[str, str]) -> None:
    """Ephemeral data needs no master key: the gateway makes one."""
    with Gateway(
        "--ephemeral",
        QUEUEGATE_AUTH="sigv4",
        **master,
        QUEUEGATE_DATA_DIR=str(tmp_path),
        QUEUEGATE_LOG_LEVEL="error",
    ) as gateway:
        found = re.search(r"first administrator's key is in (\S+):", gateway.printed)
        assert found is not None
        file = Path(found[1])
        assert "AWS_SECRET_ACCESS_KEY=" in file.read_text()
        assert file.stat().st_mode & 0o777 == 0o600
    assert not file.parent.exists()
    assert [*tmp_path.iterdir()] == []


def test_more_administrators(dsn: str) -> None:
    more = {"DATABASE_URL": dsn, "QUEUEGATE_MASTER_KEY": MASTER_KEY}
    for _ in range(2):
        made = call("keys", "create", "--administrator", **more)
        assert made.stdout.startswith("AWS_ACCESS_KEY_ID=AKQG")
        assert made.returncode == 0
    unnamed = call("keys", "create", **more)
    assert (unnamed.returncode, "needs a name" in unnamed.stderr) == (1, True)
    said = call("keys", "rotate", "1", "--overlap", "2d", **more).stderr
    assert "The previous secret is valid until 2" in said
    wrong = more | {"QUEUEGATE_MASTER_KEY": ANOTHER}
    refused = call("keys", "create", "shop", "--access", **wrong).stderr
    assert ("is not the one that secrets" in refused, refused.count("\n")) == (True, 1)
    rotated = call("keys", "rotate", "1", "--overlap", "40d", **more)
    assert (rotated.returncode, "30 days" in rotated.stderr) == (1, True)
    assert "there is no key 999" in call("keys", "rotate", "999", **more).stderr
