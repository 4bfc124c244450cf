"""Reports on dead letters and traffic: their figures, and pages that are safe to open."""

from __future__ import annotations

import datetime
import html.parser
import json
from typing import TYPE_CHECKING

import pytest

from spark_connectors.pipelines.reports.charts import (
    Bar,
    Line,
    columns,
    decades,
    linear_ticks,
    lines,
    ranking,
)
from spark_connectors.pipelines.reports.dead_letters import DeadLetterPlan, report_dead_letters
from spark_connectors.pipelines.reports.error_classes import (
    BadPath,
    Classifier,
    at_path,
    fingerprint,
    masked,
)
from spark_connectors.pipelines.reports.page import html_of
from spark_connectors.pipelines.reports.plain import Table, text_of
from spark_connectors.pipelines.reports.traffic import TrafficPlan, between, report_traffic
from spark_connectors.pipelines.reports.traffic_figures import gini
from tests.spark.archived_rows import BEGINNING, frame, ids, micros, row, text_attributes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ATTACK = "<script>alert(1)</script><img src=x onerror=alert(2)>\"'&\x1b[2J\u202e"
ARN = "arn:aws:sqs:us-east-1:000000000000:orders"


class _Tags(html.parser.HTMLParser):
    """Which elements a page has, and which attributes."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.texts: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


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


def test_a_json_path_is_taken_where_no_attribute_says_it() -> None:
    classify = Classifier(json_path="$.errors[0]['code']").check().error_class
    body = json.dumps({"errors": [{"code": "E-77"}]})
    assert classify(body, {}) == "E-<n>"
    assert classify(body, {"error": "mine"}) == "mine"
    assert classify('{"errors": []}', {}) == "JSON {errors:[]}"
    assert at_path('{"a": {"b": 1}}', "a.b") == "1"
    with pytest.raises(BadPath, match="no JSON path"):
        Classifier(json_path="$.a[").check()


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
    assert [(one.name, one.messages) for one in found.classes] == [("Timeout", 3), ("JSON {id}", 1)]
    assert (found.classes[0].first_sent, found.classes[0].last_sent) == (
        micros(hours(4)),
        micros(hours(2)),
    )
    assert [(one.name, one.messages) for one in found.sources] == [
        ("orders", 3),
        ("(sent here directly)", 1),
    ]
    assert found.distinct == {"error_classes": 2, "sources": 1, "groups": 1}
    assert dict(found.ages)["1 to 6 hours"] == 3
    assert dict(found.ages)["over 7 days"] == 1
    assert [one.body for one in found.samples["Timeout"]] == ["body…", "body…"]
    assert found.samples["Timeout"][0].about.startswith(timeouts[0]["message_id"])


def test_an_empty_dead_letter_queue_is_a_report_too(spark: SparkSession) -> None:
    found = report_dead_letters(frame(spark, []))
    assert found.messages == 0
    assert "None." in html_of(found.report())
    assert json.loads(json.dumps(found.as_json()))["error_classes"] == []


def test_a_page_runs_nothing_that_a_message_says(spark: SparkSession) -> None:
    letter = row(
        1,
        queue=ATTACK,
        body=ATTACK,
        message_group_id=ATTACK,
        message_attributes=text_attributes(ErrorCode=ATTACK),
        dead_letter_source=ATTACK,
    )
    found = report_dead_letters(frame(spark, [letter]), DeadLetterPlan(Classifier(("ErrorCode",))))
    page = html_of(found.report())
    parsed = _Tags(page)
    assert not parsed.tags & {"script", "img", "iframe", "object", "link", "a"}
    assert not {name for name in parsed.attributes if name.startswith("on")}
    assert "src" not in parsed.attributes
    assert ATTACK in parsed.texts
    assert "default-src 'none'" in page
    terminal = "\n".join(found.lines())
    assert "\x1b" not in terminal
    assert "\u202e" not in terminal


def test_traffic_counts_volume_latency_duplicates_and_groups(spark: SparkSession) -> None:
    rows = [row(number, latency_ms=100 * (1 + number % 2)) for number in range(120)]
    grouped = [row(200 + n, message_group_id="a" if n else "b", body="same") for n in range(4)]
    again = [rows[0], rows[0]]
    found = report_traffic(frame(spark, [*rows, *grouped, *again]), TrafficPlan(by="hour"))
    assert found.totals.messages == 126
    assert [one.messages for one in found.volume] == [62, 60, 4]
    assert found.duplicates.same_id == 2
    assert found.duplicates.same_body == 3
    assert [(one.name, one.messages) for one in found.skew.top] == [("a", 3), ("b", 1)]
    assert found.skew.gini == pytest.approx(0.25)
    assert found.skew.most_to_mean == pytest.approx(1.5)
    whole = found.latency[-1]
    assert (whole.day, whole.messages, whole.p50, whole.p99) == (None, 126, 0.2, 0.2)
    assert sum(one.messages for one in found.body_sizes) == 126
    assert json.loads(json.dumps(found.as_json()))["by"] == "hour"
    assert _Tags(html_of(found.report())).tags >= {"svg", "rect", "polyline"}


def test_days_are_utc_whatever_the_session_says(spark: SparkSession) -> None:
    late = datetime.datetime(2026, 11, 1, 23, 30, tzinfo=datetime.UTC)
    rows = frame(spark, [row(1, sent=late), row(2, sent=late + datetime.timedelta(hours=1))])
    spark.conf.set("spark.sql.session.timeZone", "Pacific/Auckland")
    try:
        found = report_traffic(rows)
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    assert [one.day for one in found.latency] == ["2026-11-01", "2026-11-02", None]


def test_an_archive_of_nothing_is_a_report_too(spark: SparkSession) -> None:
    found = report_traffic(frame(spark, []))
    assert found.totals.messages == 0
    assert found.skew.groups == 0
    assert "Queue traffic" in html_of(found.report())


def test_rows_between_two_instants(spark: SparkSession) -> None:
    rows = frame(spark, [row(number) for number in range(5)])
    minute = datetime.timedelta(minutes=1)
    found = between(rows, micros(BEGINNING + minute), micros(BEGINNING + 3 * minute))
    assert ids(found) == [row(1)["message_id"], row(2)["message_id"]]


@pytest.mark.parametrize(
    ("counts", "expected"),
    [([(5, 4)], 0.0), ([(0, 3), (12, 1)], 0.75), ([(1, 1), (3, 1)], 0.25)],
)
def test_gini_of_groups(counts: list[tuple[int, int]], expected: float) -> None:
    assert gini(counts) == pytest.approx(expected)


@pytest.mark.parametrize("most", [0.3, 1, 4, 7, 99, 100, 1234, 9.9e6])
def test_ticks_are_round_and_reach_the_top(most: float) -> None:
    ticks = linear_ticks(most)
    assert ticks[0] == 0
    assert most <= ticks[-1] < 2 * most + 1
    assert len(ticks) <= 7


def test_decades_enclose_the_values() -> None:
    assert decades(0.2, 3) == [0.1, 1, 10]
    assert decades(1, 1) == [1, 10]


def test_charts_escape_what_they_show() -> None:
    for chart in (
        columns([Bar(ATTACK, 2)], str),
        ranking([Bar(ATTACK, 2)], str),
        lines([ATTACK], [Line(ATTACK, [0.5])], str),
    ):
        assert _Tags(chart).tags <= {
            "svg",
            "g",
            "rect",
            "text",
            "title",
            "line",
            "polyline",
            "circle",
            "p",
            "span",
            "i",
        }
    assert columns([], str) == ranking([], str) == lines([], [], str) == ""


def test_a_wide_cell_is_cut_and_steers_no_terminal() -> None:
    text = "\n".join(
        text_of(Table("t", ("a", "b"), [("x" * 100 + "\x1b[31m", "1")], frozenset({1})))
    )
    assert "x" * 59 + "…" in text
    assert "\x1b" not in text
