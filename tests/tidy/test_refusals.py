"""Each refusal has its form on each face, and a test that provokes it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gateway.faces import refusals
from storage.errors import Rejected
from tests.tidy.source import product, suite


def leaves(base: type[Rejected]) -> Iterator[type[Rejected]]:
    """The classes below `base` that nothing derives from."""
    below = base.__subclasses__()
    if not below:
        yield base
    for one in below:
        yield from leaves(one)


ALL = sorted(
    (leaf for leaf in leaves(Rejected) if leaf.__module__.startswith("storage.")),
    key=lambda leaf: leaf.__name__,
)


@pytest.mark.parametrize("refusal", ALL, ids=lambda refusal: refusal.__name__)
def test_each_refusal_has_its_form_on_the_native_api(refusal: type[Rejected]) -> None:
    assert 400 <= refusals.REST[refusal] < 500


def test_no_form_is_for_a_refusal_that_does_not_exist() -> None:
    tables = [*refusals.AWS.values(), refusals.REST]
    assert {refusal for table in tables for refusal in table} == set(ALL)


# Only the native API refuses so: every other refusal has a form on a service of AWS.
NATIVE_ONLY = {"SubscriptionExists"}


def test_each_refusal_has_its_form_on_some_service_of_aws() -> None:
    named = {refusal for table in refusals.AWS.values() for refusal in table}
    assert {refusal.__name__ for refusal in ALL if refusal not in named} == NATIVE_ONLY


@pytest.mark.parametrize("refusal", ALL, ids=lambda refusal: refusal.__name__)
def test_each_refusal_is_raised_somewhere(refusal: type[Rejected]) -> None:
    raised = [
        source
        for source in product()
        if f"{refusal.__name__}(" in source.text.replace(f"class {refusal.__name__}(", "")
    ]
    assert raised, f"{refusal.__name__} is never raised: delete it"


@pytest.mark.parametrize("refusal", ALL, ids=lambda refusal: refusal.__name__)
def test_each_refusal_is_provoked_by_a_test(refusal: type[Rejected]) -> None:
    """By its class in tests of operations, or by a name on the wire that it alone has."""
    names = {refusal.__name__} | own_names(refusal)
    texts = [source.text for source in suite() if "tidy" not in source.path.parts]
    assert any(name in text for text in texts for name in names), names


def own_names(refusal: type[Rejected]) -> set[str]:
    """The codes of this refusal's error that no other refusal has."""
    others = {name for one in ALL if one is not refusal for name in codes(one)}
    return codes(refusal) - others


def codes(refusal: type[Rejected]) -> set[str]:
    errors = [table[refusal] for table in refusals.AWS.values() if refusal in table]
    return {name for error in errors for name in (error.shape, error.query_code)}
