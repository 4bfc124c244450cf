"""Timings in short English."""

from __future__ import annotations

import pytest

from queuegate.protocol.expression_forms import human_readable, parse_aws, parse_form
from queuegate.protocol.timing import Timing
from tests.scheduler.expressions.oracle import at

NOW = at("2026-07-01T10:00")


@pytest.mark.parametrize(
    ("cron", "wanted"),
    [
        ("* * * * *", "Every minute"),
        ("*/5 * * * *", "Every 5 minutes"),
        ("0 * * * *", "Every hour (Europe/Berlin)"),
        ("15 * * * *", "Every hour at minute 15 (Europe/Berlin)"),
        ("0 */6 * * *", "Every 6 hours (Europe/Berlin)"),
        ("10 */6 * * *", "Every 6 hours at minute 10 (Europe/Berlin)"),
        ("0 9 * * 1-5", "Every weekday at 09:00 (Europe/Berlin)"),
        ("0 9 * * mon-fri", "Every weekday at 09:00 (Europe/Berlin)"),
        ("30 9,17 * * *", "Every day at 09:30 and 17:30 (Europe/Berlin)"),
        ("0 8 * * 0,6", "Every Saturday and Sunday at 08:00 (Europe/Berlin)"),
        ("0 8 * * 7,1,3", "Every Monday, Wednesday and Sunday at 08:00 (Europe/Berlin)"),
        ("0 0 1 * *", "On the 1st of every month at 00:00 (Europe/Berlin)"),
        ("0 0 2,11,23 * *", "On the 2nd, 11th and 23rd of every month at 00:00 (Europe/Berlin)"),
        ("0 0 24 12 *", "On the 24th of December at 00:00 (Europe/Berlin)"),
        ("0 9 * 1,7 1", "Every Monday in January and July at 09:00 (Europe/Berlin)"),
        ("0 9 * 7 *", "Every day in July at 09:00 (Europe/Berlin)"),
        ("*/10 * * * 1-5", "Every 10 minutes, every weekday (Europe/Berlin)"),
        ("* 9-17 * * *", "Every minute from 09:00 to 17:59 (Europe/Berlin)"),
        ("*/15 9-17 * * 5", "Every 15 minutes from 09:00 to 17:45, every Friday (Europe/Berlin)"),
        ("5 9-17 * * *", "Every hour from 09:05 to 17:05 (Europe/Berlin)"),
        ("0 0 13 * 5", "As cron expression 0 0 13 * 5 says (Europe/Berlin)"),
        ("1-59/7 3,9-17 * * *", "As cron expression 1-59/7 3,9-17 * * * says (Europe/Berlin)"),
        ("0 0 1-20 * *", "As cron expression 0 0 1-20 * * says (Europe/Berlin)"),
    ],
)  # fmt: skip
def test_cron(cron: str, wanted: str) -> None:
    assert human_readable(parse_form(cron=cron, timezone="Europe/Berlin", now=NOW)) == wanted


@pytest.mark.parametrize(
    ("expression", "wanted"),
    [
        ("cron(0/15 * * * ? *)", "Every 15 minutes"),
        ("cron(0 0/6 * * ? *)", "Every 6 hours"),
        ("cron(0 18 ? * MON-FRI *)", "Every weekday at 18:00 (UTC)"),
        ("cron(0 12 L * ? *)", "On the last day of every month at 12:00 (UTC)"),
        ("cron(0 12 LW 6 ? *)", "On the last weekday of June at 12:00 (UTC)"),
        ("cron(0 0 15W * ? *)", "On the weekday nearest the 15th of every month at 00:00 (UTC)"),
        ("cron(0 9 ? * MON#1 *)", "On the first Monday of every month at 09:00 (UTC)"),
        ("cron(15 10 ? * 6L 2026-2028)",
         "On the last Friday of every month from 2026 to 2028 at 10:15 (UTC)"),
        ("cron(0 9 * * ? 2026,2028)", "Every day in 2026 and 2028 at 09:00 (UTC)"),
        ("cron(0 9 1 1 ? 2000/2)",
         "On the 1st of January in 2000, 2002, 2004, 2006, 2008, 2010 and later at 09:00 (UTC)"),
        ("cron(1-59/7 8-8 ? * 2 *)", "As cron(1-59/7 8-8 ? * 2 *) says (UTC)"),
        ("rate(5 minutes)", "Every 5 minutes"),
        ("rate(1 day)", "Every day"),
        ("at(2026-12-01T09:00:00)", "Once at 2026-12-01 09:00:00 UTC"),
    ],
)  # fmt: skip
def test_aws(expression: str, wanted: str) -> None:
    assert human_readable(parse_aws(expression, anchor=NOW)) == wanted


@pytest.mark.parametrize(
    ("seconds", "wanted"),
    [
        (1, "Every second"),
        (90, "Every 90 seconds"),
        (420, "Every 7 minutes"),
        (5400, "Every 90 minutes"),
        (18000, "Every 5 hours"),
        (172800, "Every 2 days"),
        (1209600, "Every 2 weeks"),
    ],
)
def test_rates(seconds: int, wanted: str) -> None:
    assert human_readable(Timing("rate", seconds=seconds, anchor=NOW)) == wanted
