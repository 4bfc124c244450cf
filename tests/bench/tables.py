"""The figures to reach, and how a run is shown: for a terminal, and as the table of the README."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from tests.bench.stage import Figures

Summary = Mapping[str, Mapping[str, float]]
MIB_PER_MB = 1.048576


@dataclass(frozen=True)
class Part:
    """One number of a row: where it stands in the summary, and its bounds, if it has any."""

    key: str
    field: str
    reach: float | None
    stretch: float | None


@dataclass(frozen=True)
class Row:
    """One row of the table of figures to reach; parts of the same unit are shown joined."""

    about: str
    unit: str
    parts: tuple[Part, ...]
    joined: str = " + "


_Bounds = tuple[float | None, float | None]
_NONE: _Bounds = (None, None)


def _cpu(about: str, key: str, reach: _Bounds = _NONE, stretch: _Bounds = _NONE) -> Row:
    return Row(
        about,
        "µs",
        (
            Part(key, "gateway_us", reach[0], stretch[0]),
            Part(key, "database_us", reach[1], stretch[1]),
        ),
    )


def _one(about: str, unit: str, key: str, field: str, bounds: _Bounds = _NONE) -> Row:
    return Row(about, unit, (Part(key, field, *bounds),))


def _face(about: str, key: str) -> Row:
    parts = tuple(Part(f"{key}/{connections}", "ratio", 1.5, None) for connections in (1, 16, 64))
    return Row(about, "x", parts, " / ")


ROWS: tuple[Row, ...] = (
    _cpu("SendMessage", "send/64/1024", (65, 15), (40, 12)),
    _cpu("SendMessage, 16 connections", "send/16/1024", (80, 30), (45, 18)),
    _one("a verified signature, on top", "µs", "signed-send/64", "more_us", (12, None)),
    _one("the same, 16 connections", "µs", "signed-send/16", "more_us", (12, None)),
    _cpu("SendMessageBatch of 10", "send-batch/64/1024", (200, 95), (140, 75)),
    _cpu("ReceiveMessage of 1", "receive-1/64/1024", (70, 35), (50, 25)),
    _cpu("ReceiveMessage of 10", "receive-10/64/1024", (150, 120), (105, 105)),
    _cpu("ReceiveMessage on an empty queue", "receive-empty/64/1024", (55, 15), (35, 5)),
    _cpu("DeleteMessage", "delete/64/1024", (48, 12), (30, 9)),
    _cpu("DeleteMessageBatch of 10", "delete-batch/64/1024", (75, 30), (45, 25)),
    _one("whole cycle, in all", "µs", "cycle/64/1024", "total_us", (250, 180)),
    _one("FIFO cycle, 64 groups, in all", "µs", "fifo-64/64/1024", "total_us", (420, 230)),
    _one("FIFO cycle, 100,000 groups, in all", "µs", "fifo-many/64/1024", "total_us", (500, 280)),
    _cpu("POST of a message, native API", "rest-send/64/1024"),
    _cpu("the same, sync_commit false", "rest-send-async/64/1024"),
    _cpu("the same, gathered for 5 ms", "rest-send-linger/64/1024"),
    _cpu("both", "rest-send-linger-async/64/1024"),
    _cpu("GET of one and its DELETE, native API", "rest-receive/64/1024"),
    _face("cycle of the native API, against AWS's, 1 / 16 / 64", "face-rest"),
    _face("the same of the simple queue", "face-simple"),
    _face("the same of channels", "face-channels"),
    _face("the same of the text face", "face-text"),
    _face("the same, both on a text queue of 256 groups", "face-text-groups"),
    _one("p50 of a durable send, 1 connection", "ms", "send/1/1024", "p50_ms", (1.0, 0.5)),
    _one("long poll, send to receipt, p50", "ms", "wake", "p50_ms", (4, 1.5)),
    _one("the same, another process, p50", "ms", "wake-other", "p50_ms", (6, 2.5)),
    Row(
        "the same two, p99",
        "ms",
        (Part("wake", "p99_ms", 15, 5), Part("wake-other", "p99_ms", 15, 5)),
        " / ",
    ),
    _one("1,000 idle long polls, CPU", "% of a core", "idle-polls", "cpu_percent", (2, 0.5)),
    _one("a send beside them, against without", "x", "idle-polls", "ratio", (1.1, 1.1)),
    _one("push, publish to frame, p50", "ms", "push", "p50_ms", (2, None)),
    _one("the same, another process, p50", "ms", "push-other", "p50_ms", (4, None)),
    Row(
        "push to 1 / 100 / 1,000 consumers",
        "a second",
        tuple(
            Part(f"push-many/{consumers}", "per_second", None, None) for consumers in (1, 100, 1000)
        ),
        " / ",
    ),
    Row(
        "10,000 idle WebSockets / streams",
        "MB",
        (
            Part("push-idle", "grown_mb", 300, None),
            Part("push-idle-streams", "grown_mb", 300, None),
        ),
        " / ",
    ),
    Row(
        "their CPU, and on 10,000 channels",
        "% of a core",
        tuple(
            Part(key, "cpu_percent", None, None)
            for key in ("push-idle", "push-idle-streams", "push-idle-channels")
        ),
        " / ",
    ),
    Row(
        "a record published and consumed, against a cycle; 1 / 16 / 1,000 partitions",
        "x",
        tuple(Part(f"log-cycle/{count}", "ratio", 0.6, None) for count in (1, 16, 1_000)),
        " / ",
    ),
    _one("publish to fetch, p50", "ms", "log-wake", "p50_ms", (4, None)),
    _one("the same, another process, p50", "ms", "log-wake-other", "p50_ms"),
    Row(
        "50 of 200 subscribers killed: all is consumed again after; of 100",
        "leases",
        tuple(Part(f"log-scale/{size}", "leases", 1.5, None) for size in ("200-5000", "100-2500")),
        " / ",
    ),
    _one("receive at a depth of 1,000,000", "x", "depth", "ratio", (1.3, 1.1)),
    _one("receive after 1,000,000 messages of churn", "x", "churn", "ratio", (1.5, 1.2)),
    _one("the same, an idle transaction open", "x", "idle-transaction", "ratio", (5, 3)),
    _one("Publish to one queue, against a send", "x", "publish-to-send/64", "ratio", (1.6, None)),
    _one("the same, 16 connections", "x", "publish-to-send/16", "ratio"),
    _one("Publish to one queue, in all", "µs", "publish-1/64/1024", "total_us", (None, 85)),
    _one("the same, 16 connections", "µs", "publish-1/16/1024", "total_us"),
    _cpu("Publish to one queue", "publish-1/64/1024"),
    _cpu("the same, an envelope", "envelope-1/64/1024"),
    _cpu("the same, over JSON", "publish-json/64/1024"),
    _cpu("the same, a text that is JSON", "publish-order/64/1024"),
    _cpu("Publish to no queue", "publish-0/64/1024"),
    _cpu("Publish to 10 queues", "publish-10/64/1024"),
    _cpu("Publish to 100 queues", "publish-100/64/1024"),
    _cpu("each further copy, of 10", "publish-copy/10", (15, 15), (8, 8)),
    _cpu("each further copy, of 100", "publish-copy/100", (15, 15), (8, 8)),
    _cpu("each further envelope, of 10", "envelope-copy/10", (15, 15), (8, 8)),
    _cpu("each further envelope, of 100", "envelope-copy/100", (15, 15), (8, 8)),
    _cpu("Publish with an attribute", "publish-attr/64/1024"),
    _cpu("the same, 50 filter policies refuse it", "publish-filter/64/1024"),
    _cpu("PublishBatch of 10, per message", "batch-message"),
    _cpu("Publish on a FIFO topic to a FIFO queue", "publish-fifo/64/1024"),
    _cpu("publish, receive, delete: raw", "raw-cycle/64/1024"),
    _cpu("the same, a signed envelope", "signed-cycle/64/1024"),
    _cpu("the same, not signed", "unsigned-cycle/64/1024"),
    _cpu("web hook delivery, 1 endpoint", "webhooks/1"),
    _cpu("the same, raw", "webhooks-raw/1"),
    _cpu("web hook delivery, 100 endpoints", "webhooks/100"),
    Row(
        "deliveries, 1 endpoint / 1 raw / 100",
        "a second",
        tuple(
            Part(key, "per_second", None, None)
            for key in ("webhooks/1", "webhooks-raw/1", "webhooks/100")
        ),
        " / ",
    ),
    Row(
        "publish to its POST, p50 / p99",
        "ms",
        tuple(Part("webhook-latency", field, None, None) for field in ("p50_ms", "p99_ms")),
        " / ",
    ),
    _one("slowest ping beside one request of 8 MiB", "ms", "hold", "held_ms", (20, None)),
    _one("a send beside 24 x 1 MB to another queue, p50", "ms", "noisy", "p50_ms"),
    _one("the same, beside publishes to 10 queues", "ms", "noisy-publish", "p50_ms"),
    _one("a send beside an account at its quota: p99, times that alone", "", "quota", "times"),
    _one(
        "sends at twice the best rate, 2,000 connections: answered, of the best rate",
        "",
        "overload",
        "goodput",
    ),
    _one("the same, p99 of those admitted", "ms", "overload", "p99_ms"),
    Row(
        "dwell of 50 quiet groups: empty queue / noisy group / no groups, p50",
        "s",
        tuple(
            Part("fair-dwell", field, None, None)
            for field in ("base_p50_s", "p50_s", "unfair_p50_s")
        ),
        " / ",
    ),
    _one("the second of these against the first", "x", "fair-dwell", "ratio", (2, None)),
    Row(
        "lateness of 1 / 1,000 / 50,000 schedules at one second, p99",
        "ms",
        (
            Part("schedules/1", "p99_ms", 50, None),
            Part("schedules/1000", "p99_ms", 500, None),
            Part("schedules/50000", "p99_ms", None, None),
        ),
        " / ",
    ),
    _cpu("a fire, of 50,000", "schedules/50000"),
    _one("start, existing data", "s", "start/again", "seconds", (0.7, 0.4)),
    _one("start, first ever", "s", "start/first", "seconds", (2.0, 1.0)),
    _one("gateway, resident, idle", "MB", "memory/idle", "gateway_rss", (60, 45)),
    _one("gateway, resident, under load", "MB", "memory/load", "gateway_rss", (120, 80)),
    _one("PostgreSQL, idle (proportional)", "MB", "memory/idle", "database_pss", (30, 22)),
)


def markdown(summary: Summary) -> str:
    """Return the table of the README: reach, stretch and what this run measured."""
    lines = [
        "| what | unit | reach | stretch | measured | | moto | ratio to moto |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for row in ROWS:
        bounds = [f"≤ {text}" if text else "" for text in _bounds(row)]
        measured = _measured(summary, row)
        moto, ratio = _beside_moto(summary, row)
        cells = (row.about, row.unit, *bounds, measured, mark(summary, row))
        lines.append(f"| {' | '.join((*cells, moto, ratio))} |")
    return "\n".join(lines)


def mark(summary: Summary, row: Row) -> str:
    """Say which bound a row keeps: every part must, or at least their sum where they add up."""
    values = [_value(summary, part) for part in row.parts]
    known = [value for value in values if value is not None]
    missed = ""
    for name in ("stretch", "reach"):
        bounds = [bound for part in row.parts if (bound := getattr(part, name)) is not None]
        if len(known) < len(values) or not bounds:
            continue
        missed = "missed"
        if all(value <= bound for value, bound in zip(known, bounds, strict=True)):
            return name
        if row.joined == " + " and sum(known) <= sum(bounds):
            return f"{name} in sum"
    return missed


def report(summary: Summary) -> str:
    """Return a run for a terminal: the hot path, the rest, and the figures to reach."""
    lines = [
        f"{'operation':15}{'conns':>6}{'bytes':>6}{'gateway':>10}{'database':>10}{'in all':>9}"
        f"{'p50 ms':>9}{'p99 ms':>9}{'per s':>9}{'moto us':>10}{'ratio':>8}"
    ]
    for key, values in summary.items():
        name, *sizes = key.split("/")
        if len(sizes) == 2 and not key.startswith("moto "):
            lines.append(_hot_line(summary, (name, *sizes), values))
    lines += ["", "others"]
    for key, values in summary.items():
        if key.count("/") < 2:
            fields = ", ".join(f"{name} {_number(value)}" for name, value in values.items())
            lines.append(f"  {key}: {fields}")
    lines += ["", f"{'figure to reach':42}{'reach':>12}{'stretch':>12}{'measured':>18}"]
    for row in ROWS:
        reach, stretch = _bounds(row)
        measured = _measured(summary, row)
        lines.append(
            f"{row.about:42}{reach:>12}{stretch:>12}{measured:>18} {row.unit:12}"
            f"{mark(summary, row)}"
        )
    return "\n".join(lines)


def _bounds(row: Row) -> tuple[str, str]:
    """Return the bounds of a row joined as its values are, empty where it has none."""
    reach = [f"{part.reach:g}" for part in row.parts if part.reach is not None]
    stretch = [f"{part.stretch:g}" for part in row.parts if part.stretch is not None]
    return row.joined.join(reach), row.joined.join(stretch)


def comparison(before: Summary, after: Summary, names: tuple[str, str]) -> str:
    """Return what two runs have in common, and the ratio after / before of each figure."""
    lines = [f"{'figure':30}{'field':14}{names[0]:>14}{names[1]:>14}{'ratio':>9}"]
    fields = ("total_us", "p50_ms", "p99_ms", "ratio", "cpu_percent", "seconds", "gateway_rss")
    for key in before:
        for name in fields:
            old, new = before[key].get(name), after.get(key, {}).get(name)
            if old is not None and new is not None:
                ratio = f"{new / old:9.2f}" if old else f"{'':9}"
                lines.append(f"{key:30}{name:14}{_number(old):>14}{_number(new):>14}{ratio}")
    return "\n".join(lines)


def turns(before: Figures, after: Figures) -> str:
    """Return the CPU of two gateways that were measured in turn, µs, and how they differ: the
    median of the ratios of the rounds, the least and the greatest."""
    lines = [f"{'in turns':26}{'beside':>10}{'this':>10}{'ratio':>8}   of the rounds"]
    others, own = before.every_round("total_us"), after.every_round("total_us")
    for key in others:
        if len(others[key]) != len(own.get(key, [])):
            continue  # a round could not be measured on one of them, which was said
        ratios = [new / old for old, new in zip(others[key], own[key], strict=True)]
        lines.append(
            f"{key:26}{median(others[key]):10.1f}{median(own[key]):10.1f}{median(ratios):8.3f}"
            f"   {min(ratios):.2f} to {max(ratios):.2f}"
        )
    return "\n".join(lines)


def _hot_line(summary: Summary, key: Sequence[str], values: Mapping[str, float]) -> str:
    moto = summary.get("moto " + "/".join(key), {}).get("total_us")
    beside = f"{moto:10.0f}{moto / values['total_us']:8.0f}" if moto and values["total_us"] else ""
    return (
        f"{key[0]:15}{key[1]:>6}{key[2]:>6}{values['gateway_us']:10.1f}"
        f"{values['database_us']:10.1f}{values['total_us']:9.1f}{values['p50_ms']:9.2f}"
        f"{values['p99_ms']:9.2f}{values['per_second']:9.0f}{beside}"
    )


def _value(summary: Summary, part: Part) -> float | None:
    value = summary.get(part.key, {}).get(part.field)
    if value is not None and "memory/" in part.key:
        return value * MIB_PER_MB
    return value


def _measured(summary: Summary, row: Row) -> str:
    """Return the values of a row joined as its bounds are, empty when none was measured."""
    values = [_number(_value(summary, part)) for part in row.parts]
    return row.joined.join(value or "?" for value in values) if any(values) else ""


def _beside_moto(summary: Summary, row: Row) -> tuple[str, str]:
    """Return moto's figure for a row and how many times ours it is, empty where there is none."""
    key, field = row.parts[0].key, row.parts[0].field
    field = "total_us" if field == "gateway_us" else field
    moto = _value(summary, Part(f"moto {key}", field, 0, 0))
    ours = _value(summary, Part(key, field, 0, 0))
    if not moto or not ours or (row.joined == " / "):
        return "", ""
    return _number(moto), f"{moto / ours:.3g}"


def _number(value: float | None) -> str:
    if value is None:
        return ""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"
