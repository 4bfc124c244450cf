"""Errors raised before Spark starts work: one sentence each, without a stack."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import AnalysisException, StreamingQueryException

from spark_connectors import read_queue, register
from spark_connectors.errors import NotNow, Refused
from spark_connectors.formats import WrongPython, choose_python
from spark_connectors.options import BadOption

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


Maker = Callable[..., str]
NOWHERE = "http://127.0.0.1:1"


def test_a_stream_of_what_is_not_there(spark: SparkSession, gateway: str, tmp_path: Path) -> None:
    url = f"{gateway}/000000000000/nobody-made-it"
    with pytest.raises(Refused, match=f"QueueDoesNotExist: .*asking for {url}") as refused:
        read_queue(spark, url, checkpoint=str(tmp_path), endpointUrl=gateway)
    assert refused.value.__cause__ is None
    with pytest.raises(NotNow, match=f"{NOWHERE} failed once"):
        read_queue(spark, url, checkpoint=str(tmp_path), endpointUrl=NOWHERE, maxRetries=0)
    with pytest.raises(BadOption, match="did you mean 'maxOffsetsPerTrigger'"):
        read_queue(spark, url, checkpoint=str(tmp_path), maxOffsetPerTrigger=1)
    assert not list(tmp_path.iterdir())


def test_options_are_read_when_a_reader_is_loaded(spark: SparkSession, gateway: str) -> None:
    """Whichever of the two it will be."""
    register(spark)
    given = {"endpointUrl": gateway, "queueName": "nobody-made-it"}
    spark.readStream.format("sqs").options(**given).load()
    for wrong, said in (
        ({"waitTimeSecond": "1"}, "did you mean 'waitTimeSeconds'"),
        ({"mode": "pek"}, "option 'mode': expected"),
        ({"deleteMode": "all"}, "option 'deleteMode': expected commit or spool, got 'all'"),
    ):
        for reader in (spark.read, spark.readStream):
            with pytest.raises(AnalysisException, match=said) as told:
                reader.format("sqs").options(**given, **wrong).load()
            assert "Traceback" not in str(told.value)
            assert "BadOption: " in str(told.value)


def test_a_batch_of_what_is_not_there(spark: SparkSession, gateway: str) -> None:
    register(spark)
    given = {"endpointUrl": gateway, "queueName": "nobody-made-it"}
    for mode in ("browse", "peek"):
        found = spark.read.format("sqs").options(**given, mode=mode).load()
        with pytest.raises(AnalysisException, match="QueueDoesNotExist") as told:
            found.count()
        assert "Traceback" not in str(told.value)
    rows = spark.range(1).selectExpr("'one' AS body")
    with pytest.raises(AnalysisException, match=r"QueueDoesNotExist.*nobody-made-it") as told:
        rows.write.format("sqs").options(**given).mode("append").save()
    assert "Traceback" not in str(told.value)


def test_a_query_says_why_it_ends(
    spark: SparkSession, gateway: str, make_queue: Maker, tmp_path: Path
) -> None:
    checkpoint, spool = tmp_path / "checkpoint", tmp_path / "spool"
    for url in (make_queue(gateway), make_queue(gateway)):
        frame = read_queue(
            spark, url, checkpoint=str(checkpoint), spoolPath=spool, endpointUrl=gateway
        )
        writer = frame.writeStream.format("noop").option("checkpointLocation", str(checkpoint))
        query = writer.trigger(availableNow=True).start()
        if not (tmp_path / "first").exists():
            assert query.awaitTermination(120)
            (tmp_path / "first").touch()
            continue
        with pytest.raises(StreamingQueryException, match="SpoolMismatch: the spool is of") as told:
            query.awaitTermination(120)
        assert "Traceback" not in str(told.value)


def test_spark_starts_our_python(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    context = spark.sparkContext
    monkeypatch.setattr(context, "pythonExec", "python3")
    choose_python(spark)
    assert context.pythonExec == sys.executable

    def is_told(python: Path, said: str) -> None:
        monkeypatch.setattr(context, "pythonExec", str(python))
        with pytest.raises(WrongPython, match=f"'{python}' for Python code, which {said}"):
            choose_python(spark)

    other = tmp_path / "python"
    is_told(other, "is no command here")
    for answer, said in (
        ("echo 2.7; echo", r"is Python 2\.7 and not 3"),
        ("exit 1", "does not run"),
        (f'exec "{sys.executable}" -S "$@"', "has no pyarrow and no botocore: set PYSPARK_PYTHON"),
    ):
        other.write_text(f"#!/bin/sh\nunset PYTHONPATH\n{answer}\n")
        other.chmod(0o755)
        is_told(other, said)
    other.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    choose_python(spark)
    assert context.pythonExec == str(other)
