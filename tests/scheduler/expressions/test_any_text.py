"""Whatever is written: a timing that works, or a refusal that says something."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from queuegate.protocol.calendars import Unparsable
from queuegate.protocol.expression_forms import human_readable, parse_aws, parse_form
from queuegate.protocol.phrases import PHRASES
from queuegate.protocol.timing import Timing
from tests.scheduler.expressions.oracle import at

NOW = at("2026-07-01T10:00")
WORDS = sorted({word for phrase, _ in PHRASES for word in phrase.split()})
CRON_TEXTS = st.lists(st.text("0123456789*/-,?LW#RH", max_size=6), min_size=4, max_size=7).map(
    " ".join
)
INTERVAL_TEXTS = st.lists(
    st.sampled_from(["every", "5", "m", "h", " ", "day", "days", "0", "99999999999"]), max_size=5
).map("".join)
PHRASE_TEXTS = st.lists(st.sampled_from([*WORDS, "99:99", "13pm", "0th"]), max_size=8).map(" ".join)
INSTANT_TEXTS = st.from_regex(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d)?(Z|[+-]\d\d:\d\d)?\Z")
READERS: dict[str, tuple[Callable[[str], Timing], st.SearchStrategy[str]]] = {
    "cron": (lambda text: parse_form(cron=text, now=NOW), CRON_TEXTS),
    "every": (lambda text: parse_form(every=text, now=NOW), INTERVAL_TEXTS),
    "when": (lambda text: parse_form(when=text, now=NOW), PHRASE_TEXTS),
    "fire_at": (
        lambda text: parse_form(fire_at=text, timezone="Asia/Tokyo", now=NOW),
        INSTANT_TEXTS,
    ),
    "aws cron": (lambda text: parse_aws(f"cron({text})", anchor=NOW), CRON_TEXTS),
    "aws at": (
        lambda text: parse_aws(f"at({text})", timezone="America/Lima", anchor=NOW),
        INSTANT_TEXTS,
    ),
    "aws": (lambda text: parse_aws(text, anchor=NOW), st.text()),
    "zone": (lambda text: parse_form(every="1h", timezone=text, now=NOW), st.text()),
}


@pytest.mark.parametrize("name", READERS)
@given(st.data())
def test_text_is_read_or_refused(name: str, data: st.DataObject) -> None:
    read, likely = READERS[name]
    check(read, data.draw(likely | st.text()))


@given(st.sampled_from([*READERS]), st.characters())
@example("cron", "\x00")
@example("when", "\ud800")
@example("zone", "\ud800")
def test_odd_characters_are_read_or_refused(name: str, character: str) -> None:
    check(READERS[name][0], character)
    check(READERS[name][0], character * 300)


def check(read: Callable[[str], Timing], text: str) -> None:
    timing: Timing | Unparsable
    try:
        timing = read(text)
    except Unparsable as refusal:
        timing = refusal
    if isinstance(timing, Unparsable):
        assert str(timing).endswith((".", "?"))
        return
    assert human_readable(timing)
    times = [*timing.times(NOW, limit=3)]
    assert times == sorted({*times})
