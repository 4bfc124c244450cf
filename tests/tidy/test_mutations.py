"""The mutations of `make mutate` have their places, and tests that exist."""

from __future__ import annotations

import re

import pytest

from tests.mutations.catalogue import ROOT, Mutation, mutations, place_of, product

MUTATIONS = mutations()
TEXTS = product()


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda one: one.name)
def test_a_mutation_has_one_place_and_tests(mutation: Mutation) -> None:
    assert place_of(mutation, TEXTS)
    assert mutation.find != mutation.replace
    assert mutation.tests
    for test in mutation.tests:
        file, _, name = test.partition("::")
        function = name.partition("[")[0]
        text = (ROOT / file).read_text()
        assert re.search(rf"^(?:async )?def {function}\(", text, re.MULTILINE), test


def test_there_are_sixty_of_different_names() -> None:
    assert len({one.name for one in MUTATIONS}) == len(MUTATIONS) >= 60
