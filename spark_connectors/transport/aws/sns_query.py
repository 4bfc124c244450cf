"""SNS's Query protocol, as far as PublishBatch needs it: AWS's SNS speaks no JSON."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote_plus
from xml.etree import ElementTree

CONTENT_TYPE = "application/x-www-form-urlencoded; charset=utf-8"
_MOST_BYTES = 1024 * 1024


def publish_batch_form(parameters: Mapping[str, Any]) -> bytes:
    """The body of a request. Members are those of SNS's PublishBatch."""
    pairs = [("Action", "PublishBatch"), ("Version", "2010-03-31")]
    pairs.append(("TopicArn", parameters["TopicArn"]))
    for number, entry in enumerate(parameters["PublishBatchRequestEntries"], 1):
        prefix = f"PublishBatchRequestEntries.member.{number}."
        pairs += [(prefix + name, text) for name, text in _flat(entry)]
    return "&".join([f"{name}={quote_plus(text)}" for name, text in pairs]).encode("ascii")


def _flat(entry: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name, value in entry.items():
        if name == "MessageAttributes":
            for number, (attribute, members) in enumerate(value.items(), 1):
                prefix = f"MessageAttributes.entry.{number}."
                yield prefix + "Name", attribute
                for member, content in members.items():
                    yield f"{prefix}Value.{member}", _text(content)
        else:
            yield name, value


def _text(content: str | bytes) -> str:
    return base64.b64encode(content).decode() if isinstance(content, bytes) else content


def publish_batch_result(text: bytes) -> dict[str, Any]:
    """Successful and Failed, as boto3 gives them. Raises ValueError for what is no such answer."""
    root = _parsed(text)
    if _name(root) != "PublishBatchResponse":
        raise ValueError(f"a {_name(root)[:40]} instead of a PublishBatchResponse")
    result: dict[str, Any] = {"Successful": [], "Failed": []}
    for element in root.iter():
        if (kind := _name(element)) in result:
            for member in element:
                result[kind].append({_name(each): each.text or "" for each in member})
    for failed in result["Failed"]:
        failed["SenderFault"] = failed.get("SenderFault") == "true"
    return result


def error(text: bytes) -> tuple[str, str] | None:
    """Code and message of an ErrorResponse; None or ValueError where it is none."""
    found = {_name(element): element.text or "" for element in _parsed(text).iter()}
    return (found["Code"], found.get("Message", "")) if "Code" in found else None


def _parsed(text: bytes) -> ElementTree.Element:
    # An honest answer is short and declares no entities.
    if len(text) > _MOST_BYTES or b"<!DOCTYPE" in text:
        raise ValueError("not an answer of SNS")
    try:
        return ElementTree.fromstring(text)
    except ElementTree.ParseError as error:
        raise ValueError(str(error)) from None


def _name(element: ElementTree.Element) -> str:
    return element.tag.rpartition("}")[2]
