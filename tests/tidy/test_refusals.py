"""Each refusal has its form on each face, a test that provokes it, and on AWS's faces a source."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from queuegate.gateway.faces.aws import aws_refusals as aws
from queuegate.gateway.faces.json.json_endpoints import status_of
from queuegate.storage.storage_errors import (
    PriorityUnfit,
    QueueFull,
    Rejected,
    ScheduleConflict,
    TooManyKeys,
)
from tests.tidy.source import ROOT, Source, planted, product, suite


def leaves(base: type[Rejected]) -> Iterator[type[Rejected]]:
    """The classes below `base` that nothing derives from."""
    below = base.__subclasses__()
    if not below:
        yield base
    for one in below:
        yield from leaves(one)


ALL = sorted(
    {leaf for leaf in leaves(Rejected) if leaf.__module__.startswith("queuegate.")},
    key=lambda leaf: leaf.__name__,
)


def test_the_files_of_refusals_are_known() -> None:
    """A class of a file that nobody has imported is not found."""
    assert {QueueFull, PriorityUnfit, ScheduleConflict, TooManyKeys} <= {*ALL}


@pytest.mark.parametrize("refusal", ALL, ids=lambda refusal: refusal.__name__)
def test_each_refusal_has_its_form_on_each_face(refusal: type[Rejected]) -> None:
    assert 400 <= status_of(refusal.__new__(refusal)) < 500
    for service, known in aws.ERRORS.items():
        assert aws.shape_of(service, refusal) in known


# How a refusal is called where neither its name nor that of its kind says so.
CALLED = {
    ("sqs", "MissingParameter"): "MissingRequiredParameterException",
    ("sqs", "PriorEntryRefused"): "PriorRequestNotComplete",
    ("sqs", "AccessDenied"): "AccessDeniedException",
    ("sqs", "RequestTooLarge"): "InvalidParameterValueException",
    ("sns", "ParameterValueInvalid"): "InvalidParameterValueException",
    ("sns", "ValidationFailed"): "ValidationException",
    ("sns", "AccessDenied"): "MissingAuthenticationTokenException",
    ("sns", "RequestTooLarge"): "InvalidParameterException",
    ("scheduler", "ScheduleConflict"): "ConflictException",
    ("scheduler", "ScheduleInvalid"): "ValidationException",
    ("scheduler", "ScheduleQuotaExceeded"): "ServiceQuotaExceededException",
    ("scheduler", "AccessDenied"): "MissingAuthenticationTokenException",
    ("sts", "UnknownAction"): "UnknownOperationException",
    ("sts", "AccessDenied"): "MissingAuthenticationTokenException",
    # No action of that service can meet it; it would still be no bug.
    ("sts", "PurgeQueueInProgress"): "ValidationException",
}


def test_refusals_are_called_as_the_service_calls_them() -> None:
    by_name = {refusal.__name__: refusal for refusal in ALL}
    assert {pair: aws.shape_of(pair[0], by_name[pair[1]]) for pair in CALLED} == CALLED


@pytest.mark.parametrize("refusal", ALL, ids=lambda refusal: refusal.__name__)
def test_each_refusal_is_raised_somewhere(refusal: type[Rejected]) -> None:
    raising = re.compile(rf"(?<!class )\b{refusal.__name__}\(|refusing\({refusal.__name__}\b")
    assert any(raising.search(source.text) for source in product()), (
        f"{refusal.__name__} is never raised: delete it"
    )


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
    errors = [known[aws.shape_of(service, refusal)] for service, known in aws.ERRORS.items()]
    return {name for error in errors for name in (error.shape, error.query_code)}


def squeezed(text: str) -> str:
    return " ".join(text.split())


OF_AWS = re.compile(
    r"faces/aws/|operations/topics/(topic_|mobile)"
    r"|protocol/(filter_|delivery_policies|json_wire|query_wire|rest_json_wire|shapes)"
)
"""Files whose texts are those of AWS's faces."""


def unsourced(sources: tuple[Source, ...]) -> Iterator[str]:
    """The texts of AWS's faces that neither the contract nor its cases have."""
    pages = [*(ROOT / "docs/contract").glob("*.md")]
    cases = [*(ROOT / "tests/protocol/vectors").glob("*.json")]
    known = squeezed("".join(page.read_text("utf-8") for page in pages + cases).replace("\\", ""))
    for source in sources:
        alone = {id(node.value) for node in source.nodes if isinstance(node, ast.Expr)}
        for text in source.strings:
            words = squeezed(str(text.value))
            is_code = "%s" in words or "\\w" in words or id(text) in alone
            is_text = words.count(" ") > 2 and not is_code
            if OF_AWS.search(str(source)) and is_text and words not in known:
                yield f"{source}:{text.lineno}: {words}"


def test_each_text_of_awss_faces_has_a_source() -> None:
    assert [*unsourced(product())] == [], "a source goes to docs/contract/refusals.md"
    text = 'raise InvalidParameter(f"Colour Reason: {colour} is no colour of SNS")'
    for path in ("gateway/faces/aws/planted.py", "protocol/filter_planted.py"):
        assert [*unsourced((planted(text, path),))]


OLDER_THAN_THE_RULE = {
    "NextToken",
    "Publish: neither topic nor endpoint nor number",
    "StartDate, EndDate",
    "Description",
}
NO_REFUSALS = {"invocations of universal targets, never the request", "an error of the server"}


def unmarked(page: str) -> set[str]:
    """The rows of the table whose source is no recording, model, documentation or SDK."""
    rows = [re.split(r"(?<!\\)\|", line) for line in page.splitlines() if line[:2] == "| "]
    return {
        refused.strip()
        for _, refused, _, source, *_ in [row for row in rows if len(row) == 5]
        if not re.search(r"\b(SDK|[SPMD])\b|^ (From|---) $", source)
    }


def test_a_refusal_has_a_source_or_is_older_than_the_rule() -> None:
    """Otherwise it becomes acceptance, or a choice of 6.3 in the page."""
    page = (ROOT / "docs/contract/refusals.md").read_text("utf-8")
    known = page.partition("\n## 6.1 ")[2].partition("\n## 6.2 ")[0]
    assert unmarked(known) == OLDER_THAN_THE_RULE | NO_REFUSALS
    assert unmarked("| Colour | no colour | I |") == {"Colour"}
