"""The command line of the pipelines: results, usage, exit codes, and how it is started."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from spark_connectors.pipelines.pipeline_commands import COMMANDS, main, sentence
from tests.spark.conftest import ROOT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_each_command_explains_itself(capsys: pytest.CaptureFixture[str]) -> None:
    for name in COMMANDS:
        with pytest.raises(SystemExit) as ended:
            main([name, "--help"])
        assert ended.value.code == 0
        assert f"{name} [-h]" in capsys.readouterr().out


@pytest.mark.parametrize(
    "wrong",
    [
        [],
        ["archive", "--queue", "q"],
        ["replay", "--archive", "a", "--parquet", "b", "--to", "q"],
        ["replay", "--archive", "a", "--to", "q", "--since", "yesterday"],
        ["replay", "--parquet", "a", "--to", "q", "--json", "/no/such/directory/file"],
        ["archive", "--queue", "q", "--archive", "a", "--format", "csv"],
        ["archive", "--queue", "q", "--archive", "a", "--option", "noequals"],
    ],
)
def test_wrong_arguments_end_with_2(wrong: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(wrong)
    assert ended.value.code == 2
    assert "usage:" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (["replay", "--parquet", "d", "--to", "q"], "--ledger"),
    ],
)
def test_arguments_that_do_not_go_together_end_with_2(
    wrong: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*wrong, "--endpoint-url", "http://127.0.0.1:9"]) == 2
    assert said in capsys.readouterr().err


def test_a_failure_is_one_sentence_and_1(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["replay", "--archive", str(tmp_path), "--to", "q", "--quiet"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line == f"replay: file://{tmp_path} is no archive: it has no archive.json"


def test_what_spark_says_of_our_exceptions_is_their_sentence() -> None:
    carried = (
        "[STREAM_FAILED] Query [id = 1] terminated with exception: Job aborted\n"
        "Traceback (most recent call last):\n"
        '  File "spark_connectors/source/collector.py", line 5, in read\n'
        "spark_connectors.errors.Refused: QueueDoesNotExist: no such queue\n\n"
        "\tat org.apache.spark"
    )
    assert sentence(carried) == "QueueDoesNotExist: no such queue"
    assert sentence("[PATH_NOT_FOUND] Path does not exist\n\tat x") == (
        "[PATH_NOT_FOUND] Path does not exist"
    )


def test_the_launcher_finds_the_commands_in_a_zip(tmp_path: Path) -> None:
    packed = tmp_path / "spark_connectors.zip"
    with zipfile.ZipFile(packed, "w") as file:
        for source in (ROOT / "spark_connectors").rglob("*.py"):
            file.write(source, source.relative_to(ROOT))
    launcher = tmp_path / "submit.py"
    launcher.write_bytes((ROOT / "spark_connectors/pipelines/submit.py").read_bytes())
    done = subprocess.run(
        [sys.executable, str(launcher), "replay", "--parquet", "rows", "--to", "queue"],
        env={"PYTHONPATH": str(packed)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert done.stderr.startswith("replay: --parquet needs --ledger")
