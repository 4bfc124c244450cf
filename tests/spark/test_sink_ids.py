"""Deduplication ids: the same for the same row, and for no other."""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Sequence

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from spark_connectors.sink.deduplication import (
    Identity,
    encoded,
    id_of_content,
    id_of_position,
    ids_of_columns,
)

VALUES = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(2**63), 2**63 - 1),
        st.floats(allow_nan=False),
        st.text(max_size=4),
        st.binary(max_size=4),
        st.dates(),
        st.datetimes(),
        st.datetimes(timezones=st.just(datetime.UTC)),
        st.decimals(-1000, 1000, places=2),
    ),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=6,
)


def key(value: object) -> object:
    """Return a key that is equal for the same values: 1, 1.0 and True are three."""
    if isinstance(value, list):
        return ("list", *map(key, value))
    if isinstance(value, datetime.datetime):
        # One instant is one, with a zone or without: a column is one or the other.
        return ("at", value.replace(tzinfo=None))
    return (type(value).__name__, repr(value))


@given(st.lists(VALUES, max_size=4), st.lists(VALUES, max_size=4))
def test_different_rows_have_different_encodings(one: list[object], other: list[object]) -> None:
    same = [key(value) for value in one] == [key(value) for value in other]
    assert (b"".join(map(encoded, one)) == b"".join(map(encoded, other))) == same


def ids(values: Sequence[object], kind: pa.DataType, prefix: str = "") -> list[str]:
    return ids_of_columns(pa.record_batch({"key": pa.array(values, kind)}), ["key"], prefix)


def test_wider_columns_and_other_time_zones_change_no_id() -> None:
    assert ids([1, None], pa.int8()) == ids([1, None], pa.int64())
    assert ids(["a"], pa.string()) == ids(["a"], pa.large_string())
    utc, berlin = (pa.timestamp("us", zone) for zone in ("UTC", "Europe/Berlin"))
    assert ids([1_700_000_000_000_001], utc) == ids([1_700_000_000_000_001], berlin)
    assert ids([1_700_000_000_000_001], utc) != ids([1_700_000_000_000_002], utc)
    price = decimal.Decimal("1.50")
    assert ids([price], pa.decimal128(9, 2)) == ids([price], pa.decimal128(18, 2))


def test_ids_are_what_they_were_in_earlier_versions() -> None:
    """A changed encoding would send everything again after an upgrade."""
    row = pa.record_batch({"a": ["x"], "b": [7], "c": pa.array([None], pa.string())})
    assert ids_of_columns(row, ["a", "b", "c"]) == [
        "8e4c551d1d25d8a6af8b0ee6e3c95b56b0a7f858fb5ea74e90a198cd2c507f23"
    ]
    assert id_of_position(Identity("query|4", 2), 17) == "query|4|2|17"


def test_replays_and_columns_do_not_run_into_each_other() -> None:
    found = {
        *ids(["ab"], pa.string(), "r"),
        *ids(["b"], pa.string(), "ra"),
        *ids(["ab"], pa.string()),
    }
    assert len(found) == 3
    two = pa.record_batch({"a": ["x", "xy"], "b": ["yz", "z"]})
    assert len(set(ids_of_columns(two, ["a", "b"]))) == 2


def test_content_is_body_group_and_attributes() -> None:
    attributes: dict[str, tuple[str, str | bytes]] = {"a": ("String", "1"), "b": ("Binary", b"1")}
    reordered = dict(reversed(attributes.items()))
    one = id_of_content(b"body", "g", attributes)
    assert one == id_of_content(b"body", "g", reordered)
    others = {
        id_of_content(b"body", "h", attributes),
        id_of_content(b"body", None, attributes),
        id_of_content(b"body2", "g", attributes),
        id_of_content(b"body", "g", {"a": ("Number", "1"), "b": ("Binary", b"1")}),
        id_of_content(b"body", "g", {}),
    }
    assert len(others | {one}) == 6
