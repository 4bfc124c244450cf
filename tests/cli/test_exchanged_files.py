"""Files that are exchanged under a gateway that runs, as an upgrade in place does."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests import databases
from tests.cli.processes import Gateway
from tests.waiting import until

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("gateway", "protocol", "scheduler", "storage")
PAGES = ("/v1/queues", "/v1/openapi.json", "/api/queues", "/v1/channels")


class Copied(Gateway):
    """A gateway of the files in a folder."""

    def __init__(self, folder: Path, dsn: str) -> None:
        self.folder = folder
        with (folder / "log").open("w") as self.log:
            super().__init__(
                "--auth", "none", DATABASE_URL=dsn, QUEUEGATE_LOG_LEVEL="debug", PYTHONPATH=""
            )


def test_faces_are_of_one_version(tmp_path: Path) -> None:
    """Each is imported seconds after the start, not when somebody first asks it: with a copy of the
    source, and a start that waits for that."""
    for folder in ("queuegate", *FOLDERS):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    dsn = databases.of_this_process().copy()
    with Copied(tmp_path, dsn) as gateway:
        log = tmp_path / "log"
        until(log.read_text, lambda text: "all faces are open" in text)
        for folder in FOLDERS:
            shutil.rmtree(tmp_path / folder)
        assert [gateway.get(path)[0] for path in PAGES] == [200] * len(PAGES)
        assert gateway.get("/queue")[0] == 204
    databases.of_this_process().drop(dsn)
