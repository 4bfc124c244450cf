import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from queuegate.protocol import names

# The definition in docs/contract/sqs.md 2.1; too slow for the hot path.
INVALID = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@pytest.mark.parametrize("name", ["q", "A-b_9", "q" * 80])
def test_standard_queue_names(name: str) -> None:
    assert names.is_standard_queue_name(name)
    assert names.is_label(name)
    assert names.is_batch_entry_id(name)


@pytest.mark.parametrize("name", ["", "a b", "q" * 81, "q.fifo", "a.b", "q\n", "ż", "٣", "a\x00"])
def test_other_names_are_no_standard_queues(name: str) -> None:
    assert not names.is_standard_queue_name(name)
    assert not names.is_label(name)
    assert not names.is_batch_entry_id(name)


def test_suffix_of_fifo_queues_counts() -> None:
    assert names.is_fifo_queue_name("q.fifo")
    assert names.is_fifo_queue_name("q" * 75 + ".fifo")
    for name in ("q" * 76 + ".fifo", ".fifo", "q", "q.fifo\n", "q.FIFO", "a.b.fifo"):
        assert not names.is_fifo_queue_name(name)


def test_fifo_ids_have_letters_digits_and_punctuation() -> None:
    every = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~aZ09"
    assert names.is_fifo_id(every)
    assert names.is_fifo_id("x" * 128)
    for text in ("", "group 123", "x" * 129, "a\n", "ż", "\x7f", "٣"):
        assert not names.is_fifo_id(text)


@pytest.mark.parametrize(
    "name", ["a", "A.b-c_9", "n" * 256, "awsome", "Amazonia.x", "attr.1øßä", "日", "a😀", "\x80"]
)
def test_attribute_names(name: str) -> None:
    assert names.attribute_name_fault(name) is None


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("", "empty"),
        ("n" * 257, "length"),
        ("a b", "characters"),
        ("a\n", "characters"),
        ("a^", "characters"),
        ("ø\ud800", "characters"),
        ("ø\uffff", "characters"),
        ("a$", "characters"),
        (".a", "dots"),
        ("a.", "dots"),
        ("a..b", "dots"),
        ("AWS.x", "reserved"),
        ("aWs.x", "reserved"),
        ("amazon.x", "reserved"),
        ("AMAZON.", "dots"),
    ],
)
def test_faults_of_attribute_names(name: str, fault: str) -> None:
    assert names.attribute_name_fault(name) == fault


@pytest.mark.parametrize(
    "data_type", ["String", "Number.float", "Binary.image.png", "String.a-b_c", "String.größe"]
)
def test_data_types(data_type: str) -> None:
    assert names.data_type_fault(data_type) is None
    assert names.base_type(data_type) in ("String", "Number", "Binary")


@pytest.mark.parametrize(
    ("data_type", "fault"),
    [
        ("", "prefix"),
        ("string", "prefix"),
        ("Stringy", "prefix"),
        ("String ", "prefix"),
        ("Date", "prefix"),
        ("String.", "characters"),
        ("String.a b", "characters"),
        ("String.\ud800", "characters"),
        ("String.a\n", "characters"),
        ("String." + "x" * 249, "length"),
    ],
)
def test_faults_of_data_types(data_type: str, fault: str) -> None:
    assert names.data_type_fault(data_type) == fault


@pytest.mark.parametrize(
    "data_type", ["Binary", "String.  prefixed.", "String.größe", "Number." + "x" * 248]
)
def test_data_types_of_topics(data_type: str) -> None:
    assert names.is_topic_data_type(data_type)


@pytest.mark.parametrize(
    "data_type",
    ["", "String.", "Stringy", "String .", "String.\x01", "String.\ud800", "String." + "ä" * 125],
)
def test_what_is_no_data_type_of_topics(data_type: str) -> None:
    assert not names.is_topic_data_type(data_type)


def test_data_type_has_less_than_256_bytes() -> None:
    assert names.data_type_fault("String." + "x" * 248) is None


@pytest.mark.parametrize(
    "text",
    [
        "0",
        "-0.00",
        "99.12",
        "+5",
        ".5",
        "5.",
        "1e126",
        "-1E+126",
        "1e-128",
        "9" * 38,
        "9" * 38 + "000",
        "0." + "0" * 50 + "1",
        "1" + "0" * 126,
    ],
)
def test_numbers(text: str) -> None:
    assert names.is_number(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "abc",
        ".",
        "1e",
        " 1",
        "1\n",
        "1_0",
        "٣",
        "0x1",
        "NaN",
        "Infinity",
        "9" * 39,
        "1e127",
        "1.1e126",
        "1e-129",
        "1e99999",
        "0" * 600,
    ],
)
def test_other_texts_are_no_numbers(text: str) -> None:
    assert not names.is_number(text)


@given(st.text(st.characters(), max_size=20))
@example("a\x7f\x85\t\r\n")
@example("\ufffe")
@example("\uffff")
@example("\ufffd\U0010ffff\ue000\ud7ff")
@example("\ud800")
@example("\x00")
def test_invalid_characters_follow_the_definition(text: str) -> None:
    assert names.invalid_characters(text) == (INVALID.search(text) is not None)


def test_every_character_below_65536_follows_the_definition() -> None:
    for code in range(0x10000):
        text = chr(code)
        assert names.invalid_characters(text) == (INVALID.search(text) is not None), hex(code)


def test_tags() -> None:
    assert names.is_tag_key("k" * 128)
    assert names.is_tag_value("")
    assert names.is_tag_value("v" * 256)
    assert not names.is_tag_key("")
    assert not names.is_tag_key("k" * 129)
    assert not names.is_tag_key("k\x00")
    assert not names.is_tag_value("v" * 257)
