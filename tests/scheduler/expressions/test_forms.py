"""cron, every and fire_at of the native API, and what it refuses."""

from __future__ import annotations

import subprocess
import sys
from itertools import pairwise

import pytest

from queuegate.protocol.calendars import Unparsable
from queuegate.protocol.expression_forms import parse_form
from queuegate.protocol.timing import canonical
from tests.scheduler.expressions.oracle import at

NOW = at("2026-07-01T10:00:30.25")


def refusal(**form: str) -> str:
    with pytest.raises(Unparsable) as refused:
        parse_form(**form, now=NOW)
    return str(refused.value)


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ("*/5 * * * *", "*/5 * * * *"),
        ("  0\t9  * * MON-fri ", "0 9 * * MON-fri"),
        ("@hourly", "0 * * * *"),
        ("@Daily", "0 0 * * *"),
        ("@midnight", "0 0 * * *"),
        ("@weekly", "0 0 * * 0"),
        ("@monthly", "0 0 1 * *"),
        ("@yearly", "0 0 1 1 *"),
        ("@annually", "0 0 1 1 *"),
    ],
)
def test_cron_is_kept_with_aliases_written_out(given: str, wanted: str) -> None:
    timing = parse_form(cron=given, timezone="Asia/Tokyo", now=NOW)
    assert canonical(timing) == {"cron": wanted, "timezone": "Asia/Tokyo"}


@pytest.mark.parametrize(
    ("cron", "wanted"),
    [
        ("0 25 * * *", "Cron field 2 (hour): '25' is not allowed; it takes *, 0-23, lists (a,b), "
         "ranges (a-b) and steps (*/n, a-b/n)."),
        ("0 9 * * moon", "Cron field 5 (day of week): 'moon' is not allowed; it takes *, 0-7 "
         "(sun-sat), lists (a,b), ranges (a-b) and steps (*/n, a-b/n)."),
        ("0 9 * foo *", "Cron field 4 (month): 'foo' is not allowed; it takes *, 1-12 (jan-dec), "
         "lists (a,b), ranges (a-b) and steps (*/n, a-b/n)."),
        ("0 22-2 * * *", "Cron field 2 (hour): '22-2' is not allowed; a range goes upwards, so "
         "write 22-23,0-2."),
        ("0 9 * * fri-sun", "Cron field 5 (day of week): 'fri-sun' is not allowed; a range goes "
         "upwards, so write 5-6,0."),
        ("5/15 * * * *", "Cron field 1 (minute): '5/15' is not allowed; a step needs a range: "
         "5-59/15."),
        ("*/90 * * * *", "Cron field 1 (minute): '*/90' is not allowed; a step is 1-60; longer "
         "intervals are for `every`."),
        ("*/0 * * * *", "Cron field 1 (minute): '*/0' is not allowed; a step is 1-60; longer "
         "intervals are for `every`."),
        ("0 0 9 * * *", "A cron expression has five fields (minute, hour, day of month, month, "
         "day of week), found 6 in '0 0 9 * * *'. There are none for seconds and years."),
        ("", "A cron expression has five fields (minute, hour, day of month, month, day of week), "
         "found 0 in ''. There are none for seconds and years."),
        ("@reboot", "Unknown cron alias '@reboot': there are @hourly, @daily, @midnight, @weekly, "
         "@monthly, @yearly, @annually. A schedule has no reboot to wait for."),
        ("0 0 30 2 *", "Cron expression '0 0 30 2 *' never fires: none of its months has such a "
         "day."),
        ("0 0 31 4 *", "Cron expression '0 0 31 4 *' never fires: none of its months has such a "
         "day."),
        ("0 0 1 1 " + "*" * 300, "A cron expression has at most 256 characters."),
    ],
)  # fmt: skip
def test_refusals_of_cron_teach(cron: str, wanted: str) -> None:
    assert refusal(cron=cron) == wanted


@pytest.mark.parametrize(
    "item",
    ["R", "H", "h(0-5)", "H/5", "r", "?", "L", "5L", "15W", "1#2", "l5", "-1", "1-", "*-5", "1--2",
     "1,", ",1", "*/", "*/*", "1.5", "٣", "*/-1", "60-61", "**", "1-2-3", "1/2/3", "mon"],
)  # fmt: skip
def test_what_is_not_cron_is_refused(item: str) -> None:
    assert refusal(cron=f"{item} * * * *").startswith("Cron field 1 (minute): ")
    if item != "mon":
        assert refusal(cron=f"0 0 * * {item}").startswith("Cron field 5 (day of week): ")


def test_a_day_that_comes_by_either_field_does_not_make_a_cron_impossible() -> None:
    timing = parse_form(cron="0 0 30 2 mon", now=NOW)
    assert timing.next_after(NOW) == at("2027-02-01")


@pytest.mark.parametrize(
    ("every", "wanted"),
    [
        ("1m", "* * * * *"),
        ("60s", "* * * * *"),
        ("5m", "*/5 * * * *"),
        ("5 minutes", "*/5 * * * *"),
        ("every 5 minutes", "*/5 * * * *"),
        ("Every  5 MIN", "*/5 * * * *"),
        ("300 seconds", "*/5 * * * *"),
        ("30m", "*/30 * * * *"),
        ("60m", "0 * * * *"),
        ("1h", "0 * * * *"),
        ("hour", "0 * * * *"),
        ("every hour", "0 * * * *"),
        ("2h", "0 */2 * * *"),
        ("12 hrs", "0 */12 * * *"),
        ("24h", "0 0 * * *"),
        ("1d", "0 0 * * *"),
        ("day", "0 0 * * *"),
        ("7d", "0 0 * * 0"),
        ("1w", "0 0 * * 0"),
        ("week", "0 0 * * 0"),
        ("1s", 1),
        ("30s", 30),
        ("90s", 90),
        ("7m", 420),
        ("45m", 2700),
        ("90m", 5400),
        ("1h30m", 5400),
        ("1 hour 30 minutes", 5400),
        ("5h", 18000),
        ("25h", 90000),
        ("2d", 172800),
        ("2 weeks", 1209600),
        ("3650d", 315360000),
    ],
)
def test_intervals_become_cron_where_cron_can_say_them(every: str, wanted: str | int) -> None:
    found = canonical(parse_form(every=every, timezone="Asia/Tokyo", now=NOW))
    if isinstance(wanted, str):
        assert found == {"cron": wanted, "timezone": "Asia/Tokyo"}
    else:
        assert found == {"every_seconds": wanted, "anchor": "2026-07-01T10:00:30Z"}


@pytest.mark.parametrize("every", ["1m", "4m", "12m", "20m", "1h", "3h", "8h", "1d", "1w"])
def test_intervals_that_become_cron_are_kept_to_the_second(every: str) -> None:
    seconds = {"m": 60, "h": 3600, "d": 86400, "w": 604800}[every[-1]] * int(every[:-1])
    times = [*parse_form(every=every, now=NOW).times(NOW, limit=50)]
    apart = {(later - one).total_seconds() for one, later in pairwise(times)}
    assert apart == {seconds}


@pytest.mark.parametrize(
    "every", ["", "5", "five minutes", "5 fortnights", "m", "s", "1 month", "-5m", "5m ago", "1.5h",
              "every", "5mm", "1month", "٣m", "5m,", "every every 5m"],
)  # fmt: skip
def test_what_is_no_interval_is_refused(every: str) -> None:
    assert refusal(every=every) == (
        f"every: {every!r} is not understood; write a number and a unit (s, m, h, d, w, or "
        "seconds, minutes, hours, days, weeks), such as 30s, 5m, 1h30m, '2 hours' or 'day'."
    )


@pytest.mark.parametrize("every", ["0s", "0 days", "3651d", "999999999w"])
def test_intervals_have_limits(every: str) -> None:
    assert refusal(every=every) == (
        f"every: {every!r} is out of range; an interval is at least a second and at most 3650 days."
    )


@pytest.mark.parametrize(
    ("fire_at", "wanted"),
    [
        ("2026-12-01T09:00:00Z", "2026-12-01T09:00:00Z"),
        ("2026-12-01t09:00:00z", "2026-12-01T09:00:00Z"),
        ("2026-12-01T09:00:00+01:00", "2026-12-01T08:00:00Z"),
        ("2026-12-01T09:00:00.123456789Z", "2026-12-01T09:00:00.123456Z"),
        ("2026-12-01T09:00:00", "2026-12-01T00:00:00Z"),
        (" 2026-12-01 09:00 ", "2026-12-01T00:00:00Z"),
        # A minute ago is now, for clocks differ.
        ("2026-07-01T09:59:30.25Z", "2026-07-01T09:59:30.250000Z"),
    ],
)
def test_single_instants(fire_at: str, wanted: str) -> None:
    timing = parse_form(fire_at=fire_at, timezone="Asia/Tokyo", now=NOW)
    assert canonical(timing) == {"fire_at": wanted}


@pytest.mark.parametrize(
    "fire_at",
    ["", "tomorrow", "2026-12-01", "2026-13-01T00:00:00Z", "2026-02-30T00:00:00Z", "1785000000",
     "2026-12-01T24:00:00Z", "2026-12-01T09:00:60Z", "2026-W10-1T00:00:00Z",
     "2026-12-01T09:00:00+25:00",
     "2026-12-01T09:00:00 +01:00", "0001-01-01T00:00:00+01:00", "9999-12-31T23:59:59-01:00",
     "٢٠٢٦-12-01T09:00:00Z"],
)  # fmt: skip
def test_what_is_no_instant_is_refused(fire_at: str) -> None:
    assert refusal(fire_at=fire_at) == (
        f"fire_at: {fire_at!r} is no instant; write it as 2026-12-01T09:00:00Z, with an offset "
        "(+01:00), or without one as a local time in the timezone."
    )


@pytest.mark.parametrize("fire_at", ["2025-07-01T10:00:30Z", "2026-07-01T09:59:30.2Z"])
def test_instants_long_past_are_refused(fire_at: str) -> None:
    assert "is in the past; now is 2026-07-01T10:00:30Z. Is the year right?" in refusal(
        fire_at=fire_at
    )


def test_exactly_one_form_is_taken() -> None:
    wanted = "Give exactly one of cron, every, when and fire_at; found "
    assert refusal() == wanted + "none."
    assert refusal(cron="* * * * *", when="hourly") == wanted + "cron and when."


@pytest.mark.parametrize(
    ("timezone", "suggestion"),
    [
        ("Europe/Berln", " Did you mean Europe/Berlin"),
        ("europe/berlin", " Did you mean Europe/Berlin"),
        ("berlin", " Did you mean Europe/Berlin"),
        ("new york", " Did you mean America/New_York"),
        ("utc", " Did you mean UTC"),
        ("", ""),
        ("../../etc/passwd", ""),
        ("/etc/localtime", ""),
        ("Europe", ""),
        ("Factory", ""),
        ("UTC\0", ""),
        ("+02:00", ""),
    ],
)
def test_unknown_zones_are_refused_with_near_ones(timezone: str, suggestion: str) -> None:
    text = refusal(every="1h", timezone=timezone)
    assert text.startswith(f"Unknown timezone {timezone!r}: use an IANA name such as ")
    assert suggestion in text


def test_reading_a_cron_expression_imports_nothing() -> None:
    script = (
        "import sys, queuegate.protocol.calendars as cron; before = {*sys.modules}; "
        "cron.vixie_fields('*/5 1-3 * jan 1,7'); sys.exit(bool({*sys.modules} - before))"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


@pytest.mark.parametrize(
    ("form", "text"),
    [
        ("cron", "0 9 * * *"),
        ("every", "5m"),
        ("when", "every day"),
        ("fire_at", "2030-01-01T00:00:00Z"),
    ],
)
def test_what_is_kept_as_it_was_written_is_not_long(form: str, text: str) -> None:
    """Blanks mean nothing, but they are kept and shown; and a megabyte takes long to read."""
    assert "at most" in refusal(**{form: text + " " * 1_000})
    parse_form(**{form: text + " " * 100}, now=NOW)
