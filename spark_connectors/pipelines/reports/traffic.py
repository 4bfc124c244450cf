"""What went through queues, told from their archive."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.sql import functions as fn

from spark_connectors.pipelines.reports import traffic_figures as figures
from spark_connectors.pipelines.reports.charts import Bar, Line, columns, lines, ranking
from spark_connectors.pipelines.reports.page import Report, Section
from spark_connectors.pipelines.reports.plain import Table
from spark_connectors.pipelines.telling import SILENT, Teller, clock, instant, size, span

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class TrafficPlan(NamedTuple):
    """What to report. ``by``: minute, hour or day; None: what suits the time covered."""

    by: str | None = None
    most: int = 20
    title: str = "Queue traffic"


class TrafficReport(NamedTuple):
    """What the archive says. Instants in microseconds since the epoch, durations in seconds."""

    title: str
    totals: figures.Totals
    by: str
    volume: list[figures.Volume]
    latency: list[figures.Latency]
    duplicates: figures.Duplicates
    skew: figures.Skew
    body_sizes: list[figures.Share]
    receive_counts: list[figures.Share]

    def as_json(self) -> dict[str, Any]:
        """For machines."""
        totals = self.totals._asdict()
        for name in ("first_sent", "last_sent"):
            totals[name] = instant(totals[name])
        return {
            "totals": totals,
            "by": self.by,
            "volume": [{**one._asdict(), "at": instant(one.at)} for one in self.volume],
            "latency": [one._asdict() for one in self.latency],
            "duplicates": self.duplicates._asdict(),
            "groups": {
                **self.skew._asdict(),
                "top": [one._asdict() for one in self.skew.top],
            },
            "body_sizes": [one._asdict() for one in self.body_sizes],
            "receive_counts": [one._asdict() for one in self.receive_counts],
        }

    def lines(self) -> list[str]:
        """For people."""
        return self.report().lines()

    def report(self) -> Report:
        """For a page."""
        totals = self.totals
        whole = next((one for one in self.latency if one.day is None), None)
        facts = [
            ("messages", f"{totals.messages:,}"),
            ("bodies", size(totals.body_bytes)),
            ("first sent", clock(totals.first_sent)),
            ("last sent", clock(totals.last_sent)),
            ("queues", f"{totals.queues:,}"),
            (f"busiest {self.by}", f"{max((v.messages for v in self.volume), default=0):,}"),
            ("median latency", span(whole.p50 if whole else None)),
            ("99 % within", span(whole.p99 if whole else None)),
        ]
        sections = [
            self._volume(),
            self._latency(),
            self._groups(),
            self._duplicates(),
            _distribution("Body sizes", "bytes", self.body_sizes),
            _distribution("Receives of a message", "received", self.receive_counts),
        ]
        return Report(self.title, f"queues: {totals.names}; times are UTC", facts, sections)

    def _volume(self) -> Section:
        bars = [
            Bar(one.label(self.by), one.messages, f"{one.label(self.by)}: {one.messages:,}")
            for one in figures.filled(self.volume, self.by)
        ]
        busiest = sorted(self.volume, key=lambda one: (-one.messages, one.at))[:10]
        rows = [(clock(one.at), f"{one.messages:,}", size(one.body_bytes)) for one in busiest]
        names = (f"busiest {self.by}s", "messages", "bodies")
        table = Table(f"Messages sent per {self.by}", names, rows, frozenset({1, 2}))
        return Section(table, columns(bars, _count))

    def _latency(self) -> Section:
        days = [one for one in self.latency if one.day is not None]
        rows = [
            (one.day or "all", f"{one.messages:,}", span(one.p50), span(one.p95), span(one.p99))
            for one in self.latency
        ]
        names = ("day", "first receives", "p50", "p95", "p99")
        note = "From send to first receive, as the queue tells both, to the millisecond."
        series = [
            Line("p50", [one.p50 for one in days]),
            Line("p95", [one.p95 for one in days]),
            Line("p99", [one.p99 for one in days]),
        ]
        table = Table("Latency, send to receive", names, rows, frozenset({1, 2, 3, 4}), note)
        return Section(table, lines([str(one.day) for one in days], series, _tick))

    def _groups(self) -> Section:
        skew = self.skew
        rows = [(one.name, f"{one.messages:,}", f"{one.share:.1%}") for one in skew.top]
        note = "No message has a group."
        if skew.groups:
            note = (
                f"{skew.groups:,} groups; Gini {skew.gini:.2f} (0: all equal, 1: one has all); "
                f"the largest has {skew.most_to_mean:.1f} times the mean."
            )
        table = Table(
            "Message groups", ("group", "messages", "share"), rows, frozenset({1, 2}), note
        )
        return Section(table, ranking([Bar(one.name, one.messages) for one in skew.top], _count))

    def _duplicates(self) -> Section:
        found = self.duplicates
        rows = [
            ("messages archived more than once (equal message id)", f"{found.same_id:,}"),
            ("equal bodies within 5 minutes of each other", f"{found.same_body:,}"),
        ]
        note = "Rows beyond the first of their kind."
        return Section(Table("Duplicates", ("", "rows"), rows, frozenset({1}), note))


def report_traffic(
    rows: DataFrame, plan: TrafficPlan | None = None, teller: Teller = SILENT
) -> TrafficReport:
    """Figures of an archive's rows (read_archive), or of any part of them.

    Message groups count per queue. Percentiles are approximate, to one in 10,000.
    """
    plan = plan or TrafficPlan()
    found = figures.measured(rows).persist()
    try:
        totals = figures.totals(found)
        teller.say(f"{totals.messages:,} messages read")
        by = plan.by or figures.fitting(totals)
        volume = figures.volume(found, by)
        teller.step("volume done")
        latency = figures.latency(found)
        teller.step("latency done")
        return TrafficReport(
            title=plan.title,
            totals=totals,
            by=by,
            volume=volume,
            latency=latency,
            duplicates=figures.duplicates(found),
            skew=figures.skew(found, plan.most),
            body_sizes=figures.body_sizes(found),
            receive_counts=figures.receive_counts(found),
        )
    finally:
        found.unpersist()


def between(rows: DataFrame, since: int | None, until: int | None) -> DataFrame:
    """Rows sent from ``since`` up to but not including ``until``: microseconds since the epoch.

    In an archive their days are compared as well, so that only their directories are read.
    """
    sent = fn.unix_micros("sent_timestamp")
    has_day = "sent_date" in rows.columns
    for bound, compare in ((since, "ge"), (until, "lt")):
        if bound is None:
            continue
        days = fn.date_from_unix_date(fn.lit(bound // 86_400_000_000))
        if compare == "ge":
            rows = rows.where(sent >= bound)
            rows = rows.where(fn.col("sent_date") >= days) if has_day else rows
        else:
            rows = rows.where(sent < bound)
            rows = rows.where(fn.col("sent_date") <= days) if has_day else rows
    return rows


def _distribution(title: str, name: str, shares: list[figures.Share]) -> Section:
    rows = [(one.name, f"{one.messages:,}", f"{one.share:.1%}") for one in shares]
    chart = columns([Bar(one.name, one.messages) for one in shares], _count)
    return Section(Table(title, (name, "messages", "share"), rows, frozenset({1, 2})), chart)


def _tick(value: float) -> str:
    return span(value).replace(".0 ", " ")


def _count(value: float) -> str:
    return f"{value:,.0f}"
