"""The report on dead letters, and the figures of traffic that a notebook shows."""

from __future__ import annotations

import ast
import datetime
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from spark_connectors.examples import traffic
from spark_connectors.examples.dead_letter_report import (
    BadPath,
    Classifier,
    DeadLetterPlan,
    fingerprint,
    main,
    masked,
    report_dead_letters,
    table_lines,
)
from spark_connectors.pipelines.queue_archive import between, instant
from tests.spark.archived_rows import BEGINNING, append, frame, ids, micros, row, text_attributes
from tests.spark.conftest import ROOT

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ATTACK = "<script>alert(1)</script><img src=x onerror=alert(2)>\"'&\x1b[2J\u202e"
NOTEBOOK = ROOT / "spark_connectors/examples/traffic.ipynb"
ARN = "arn:aws:sqs:us-east-1:000000000000:orders"


def hours(count: float) -> datetime.datetime:
    return BEGINNING - datetime.timedelta(hours=count)


def test_a_dead_letter_has_the_class_that_its_attributes_say() -> None:
    classify = Classifier().error_class
    assert classify("x", {"ErrorCode": "TimeoutException"}) == "TimeoutException"
    assert classify("x", {"exception-class": "a.B", "ErrorMessage": "no"}) == "a.B"
    assert classify("x", {"x-exception": "later", "errorCode": "first"}) == "first"
    assert classify("x", {"trace": "1"}) == "x"
    chosen = Classifier(attributes=("why", "cause")).error_class
    assert chosen("x", {"cause": "disk", "ErrorCode": "other"}) == "disk"


def test_a_json_path_is_taken_where_no_attribute_says_it(spark: SparkSession) -> None:
    body = json.dumps({"errors": [{"code": "E-77"}], "a": {"b": 1}})
    mine = text_attributes(error="mine")
    rows = [row(1, body=body), row(2, body=body, message_attributes=mine), row(3, body='{"a": []}')]

    def classes(path: str) -> list[str]:
        plan = DeadLetterPlan(Classifier(json_path=path))
        found = report_dead_letters(frame(spark, rows), plan)
        return sorted(one["error_class"] for one in found.tables["error_classes"])

    assert classes("$.errors[0]['code']") == ["E-<n>", "JSON {a:[]}", "mine"]
    assert classes("a.b") == ["<n>", "JSON {a:[]}", "mine"]
    with pytest.raises(BadPath, match="no JSON path"):
        classes("$.a[")


def test_equal_shapes_have_equal_fingerprints() -> None:
    assert fingerprint('{"b": 1, "a": {"c": [1]}}') == fingerprint('{"a": {"c": [2, 3]}, "b": "x"}')
    assert fingerprint('{"a": 1}') != fingerprint('{"b": 1}')
    assert masked("order 12 of 550e8400-e29b-41d4-a716-446655440000 failed") == masked(
        "order 7 of 00000000-0000-4000-8000-000000000000 failed\nat line 3"
    )
    assert fingerprint("") == "(empty body)"
    assert fingerprint("{not json") == "{not json"
    assert len(fingerprint("word " * 1000)) == 120


def test_dead_letters_are_grouped_by_class_source_group_and_age(spark: SparkSession) -> None:
    timeouts = [
        row(
            number,
            queue="orders-dlq",
            sent=hours(2 + number),
            message_attributes=text_attributes(ErrorCode="Timeout"),
            dead_letter_source=ARN,
            message_group_id="a",
        )
        for number in range(3)
    ]
    other = row(9, queue="orders-dlq", sent=hours(200), body='{"id": 7}')
    plan = DeadLetterPlan(now=BEGINNING.timestamp(), samples=2, sample_letters=4)
    found = report_dead_letters(frame(spark, [*timeouts, other]), plan)
    assert found.tables["error_classes"] == [
        {
            "error_class": "Timeout",
            "messages": 3,
            "first_sent": instant(micros(hours(4))),
            "last_sent": instant(micros(hours(2))),
        },
        {
            "error_class": "JSON {id}",
            "messages": 1,
            "first_sent": instant(micros(hours(200))),
            "last_sent": instant(micros(hours(200))),
        },
    ]
    assert [(one["source"], one["messages"]) for one in found.tables["sources"]] == [
        ("orders", 3),
        ("(sent here directly)", 1),
    ]
    assert found.distinct == {"error_classes": 2, "sources": 1, "groups": 1}
    assert found.ages["1 to 6 hours"] == 3
    assert found.ages["over 7 days"] == 1
    assert [one["body"] for one in found.samples["Timeout"]] == ["body…", "body…"]
    assert found.samples["Timeout"][0]["about"].startswith(timeouts[0]["message_id"])


def test_an_empty_dead_letter_queue_is_a_report_too(spark: SparkSession) -> None:
    found = report_dead_letters(frame(spark, []))
    assert found.messages == 0
    assert found.lines().count("  (none)") == 3
    assert json.loads(json.dumps(found.as_json()))["error_classes"] == []


def test_a_report_steers_no_terminal(spark: SparkSession) -> None:
    letter = row(
        1,
        queue=ATTACK,
        body=ATTACK,
        message_group_id=ATTACK,
        message_attributes=text_attributes(ErrorCode=ATTACK),
        dead_letter_source=ATTACK,
    )
    found = report_dead_letters(frame(spark, [letter]), DeadLetterPlan(Classifier(("ErrorCode",))))
    terminal = "\n".join(found.lines())
    assert "alert(1)" in terminal
    assert "\x1b" not in terminal
    assert "\u202e" not in terminal


def test_a_result_as_text_and_json(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    letters, found = tmp_path / "letters", tmp_path / "found.json"
    frame(spark, [row(n) for n in range(5)]).write.parquet(str(letters))
    assert main(["--parquet", str(letters), "--json", str(found)]) == 0
    shown = capsys.readouterr()
    assert "Dead letters in orders: 5" in shown.out
    assert "5 dead letters read" in shown.err
    assert json.loads(found.read_text())["messages"] == 5


def test_json_on_standard_output_is_nothing_else(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    letters = tmp_path / "letters"
    frame(spark, [row(1)]).write.parquet(str(letters))
    assert main(["--parquet", str(letters), "--json", "-", "--quiet"]) == 0
    shown = capsys.readouterr()
    assert json.loads(shown.out)["messages"] == 1
    assert shown.err == ""


def test_a_wide_cell_is_cut() -> None:
    records: list[dict[str, Any]] = [{"a": "x" * 100 + "\x1b[31m", "b": 1_234}, {"a": None, "b": 5}]
    assert table_lines(records) == [
        "  " + "a".ljust(60) + "      b",
        "  " + "x" * 59 + "…  1,234",
        "  " + "-".ljust(60) + "      5",
    ]


def collected(found: DataFrame) -> list[tuple[Any, ...]]:
    return [tuple(one) for one in found.collect()]


def test_traffic_is_volume_latency_duplicates_and_groups(spark: SparkSession) -> None:
    rows = [row(number, latency_ms=100 * (1 + number % 2)) for number in range(120)]
    grouped = [row(200 + n, message_group_id="a" if n else "b", body="same") for n in range(4)]
    sent = frame(spark, [*rows, *grouped, rows[0], rows[0]])
    assert [one[1] for one in collected(traffic.volume(sent, "hour"))] == [62, 60, 4]
    assert collected(traffic.volume(sent, "day"))[0][2] == sum(
        len(one["body"]) for one in (*rows, *grouped, rows[0], rows[0])
    )
    assert collected(traffic.groups(sent)) == [("orders", "a", 3, 0.75), ("orders", "b", 1, 0.25)]
    assert collected(traffic.duplicates(sent)) == [("orders", 2, 3)]
    whole = collected(traffic.latency(sent))[-1]
    assert whole == (None, 126, pytest.approx(0.2), pytest.approx(0.2), pytest.approx(0.2))
    # "same" has 4 bytes, "body 99" 7, and "body 100" 8.
    assert [one[:2] for one in collected(traffic.body_sizes(sent))] == [(4, 4), (8, 122)]
    assert collected(traffic.receive_counts(sent)) == [(1, 126, 1.0)]


def test_days_are_utc_whatever_the_session_says(spark: SparkSession) -> None:
    late = datetime.datetime(2026, 11, 1, 23, 30, tzinfo=datetime.UTC)
    rows = frame(spark, [row(1, sent=late), row(2, sent=late + datetime.timedelta(hours=1))])
    spark.conf.set("spark.sql.session.timeZone", "Pacific/Auckland")
    try:
        found = collected(traffic.latency(rows))
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    assert [str(one[0]) for one in found] == ["2026-11-01", "2026-11-02", "None"]


def test_of_nothing_there_are_figures_too(spark: SparkSession) -> None:
    rows = frame(spark, [])
    assert collected(traffic.volume(rows)) == []
    assert collected(traffic.groups(rows)) == []
    assert collected(traffic.duplicates(rows)) == []


def test_rows_between_two_instants(spark: SparkSession) -> None:
    rows = frame(spark, [row(number) for number in range(5)])
    minute = datetime.timedelta(minutes=1)
    found = between(rows, micros(BEGINNING + minute), micros(BEGINNING + 3 * minute))
    assert ids(found) == [row(1)["message_id"], row(2)["message_id"]]


def test_the_notebook_runs(spark: SparkSession, tmp_path: Path) -> None:
    """Cell after cell as a notebook does it, and what each shows is drawn."""
    archive, letters = tmp_path / "archive", tmp_path / "letters"
    append(spark, archive, [row(n, message_group_id=f"g{n % 3}") for n in range(9)], tmp_path)
    frame(spark, [row(1, dead_letter_source=ARN)]).write.parquet(str(letters))
    names: dict[str, Any] = {}
    drawn = 0
    for cell in json.loads(NOTEBOOK.read_text())["cells"]:
        if cell["cell_type"] != "code":
            continue
        *done, last = ast.parse("".join(cell["source"])).body
        exec(compile(ast.Module(done, []), NOTEBOOK.name, "exec"), names)
        if not isinstance(last, ast.Expr):
            exec(compile(ast.Module([last], []), NOTEBOOK.name, "exec"), names)
        else:
            shown = eval(compile(ast.Expression(last.value), NOTEBOOK.name, "eval"), names)
            drawn += shown is not None and "<table" in shown._repr_html_()
        if "parameters" in cell["metadata"].get("tags", ()):
            names.update(archive=str(archive), dead_letters=str(letters))
    assert drawn == 7
    assert list(names["ids"].message_id) == [row(1)["message_id"]]
