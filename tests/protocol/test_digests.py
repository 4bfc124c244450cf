import base64
from typing import Any

import pytest

from queuegate.protocol.digests import content_based_id, md5_of_attributes, md5_of_body
from tests.protocol import contract

VECTORS = contract.load("md5")


@pytest.mark.parametrize("row", VECTORS["attributes"], ids=lambda row: row["name"])
def test_attributes_of_the_contract(row: dict[str, Any]) -> None:
    attributes = row["attributes"]
    for attribute in attributes.values():
        if "BinaryValue" in attribute:
            attribute["BinaryValue"] = base64.b64decode(attribute["BinaryValue"])
    assert md5_of_attributes(attributes) == row["md5"]
    assert md5_of_attributes(dict(reversed(attributes.items()))) == row["md5"]


@pytest.mark.parametrize("row", VECTORS["bodies"], ids=lambda row: repr(row["body"]))
def test_bodies_of_the_contract(row: dict[str, Any]) -> None:
    assert md5_of_body(row["body"]) == row["md5"]


@pytest.mark.parametrize("row", VECTORS["content_based_dedup"], ids=lambda row: row["body"])
def test_content_based_ids_of_the_contract(row: dict[str, Any]) -> None:
    assert content_based_id(row["body"]) == row["sha256_hex"]
