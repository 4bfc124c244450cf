import json
from typing import Any

import pytest
from botocore.parsers import create_parser  # type: ignore[import-untyped]

from queuegate.protocol.aws_errors import (
    SCHEDULER_ERRORS,
    SNS_ERRORS,
    SQS_ERRORS,
    STS_ERRORS,
    json_error,
    rest_error,
)
from tests.protocol import contract, oracle
from tests.protocol.oracle import scheduler_model

ROWS = contract.load("sqs_error_map")["errors"]
# Ours, beyond the contract's table: for bugs, for a database that is away, and for entries of a
# batch behind one that was refused.
OWN = {"InternalFailure", "PriorRequestNotComplete", "ServiceUnavailable"}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["shape"])
def test_errors_of_the_contract(row: dict[str, Any]) -> None:
    status, raw_headers, body = json_error(SQS_ERRORS[row["shape"]], 'text with "quotes" ż')
    headers = {name.decode(): value.decode() for name, value in raw_headers}
    assert status == row["status"]
    assert headers == {
        "content-type": "application/x-amz-json-1.0",
        "x-amzn-query-error": row["x-amzn-query-error"],
    }
    parsed = oracle.parse_json("SendMessage", body, status, headers)
    assert parsed["Error"] == row["boto3_error"] | {"Message": 'text with "quotes" ż'}
    assert f'"__type":"{row["__type"]}"'.encode() in body


def test_no_error_is_forgotten_or_invented() -> None:
    # No model of SQS has it: sessions of STS end.
    assert set(SQS_ERRORS) == {row["shape"] for row in ROWS} | OWN | {"ExpiredTokenException"}


@pytest.mark.parametrize("error", SQS_ERRORS.values(), ids=lambda error: error.shape)
def test_only_errors_of_the_server_are_the_receivers_fault(error: Any) -> None:
    assert (error.fault == "Receiver") == (error.status >= 500) == (error.shape in OWN)


SNS_MODEL = {shape.name: shape for shape in oracle.sns_model().error_shapes}
# The wire has another code for the first, and the model none for the second.
OTHER_CODES = {
    "ValidationException": "ValidationError",
    "VerificationException": "VerificationException",
}


@pytest.mark.parametrize("name", sorted(SNS_MODEL))
def test_errors_of_the_model_of_sns(name: str) -> None:
    ours, modelled = SNS_ERRORS[name], SNS_MODEL[name].metadata.get("error", {})
    assert ours.json_type == f"com.amazonaws.sns#{name}"
    assert ours.query_code == OTHER_CODES.get(name, modelled.get("code"))
    assert ours.status == modelled.get("httpStatusCode", 400)
    assert (ours.fault == "Sender") == modelled.get("senderFault", name != "InternalErrorException")


def test_no_other_error_of_sns_but_those_of_the_framework() -> None:
    others = {name: error.status for name, error in SNS_ERRORS.items() if name not in SNS_MODEL}
    assert others == {
        "AccessDeniedException": 403,
        "ExpiredTokenException": 403,
        "IncompleteSignatureException": 400,
        "InvalidSignatureException": 403,
        "MissingAuthenticationTokenException": 403,
        "PriorRequestNotComplete": 503,
        "SerializationException": 400,
        "ServiceUnavailable": 503,
        "UnknownOperationException": 400,
        "UnrecognizedClientException": 403,
    }
    assert {SNS_ERRORS[name].namespace for name in others} == {"com.amazon.coral.service"}
    codes = [error.query_code for error in SNS_ERRORS.values()]
    assert len(set(codes)) == len(codes)


SCHEDULER_MODEL = {shape.name: shape for shape in scheduler_model().error_shapes}


@pytest.mark.parametrize("name", sorted(SCHEDULER_MODEL))
def test_errors_of_the_model_of_scheduler(name: str) -> None:
    ours, modelled = SCHEDULER_ERRORS[name], SCHEDULER_MODEL[name].metadata["error"]
    assert ours.status == modelled["httpStatusCode"]
    assert (ours.fault == "Sender") == modelled.get("senderFault", False)


@pytest.mark.parametrize("error", SCHEDULER_ERRORS.values(), ids=lambda error: error.shape)
def test_errors_of_scheduler_as_botocore_reads_them(error: Any) -> None:
    status, raw_headers, body = rest_error(error, 'text "ż"')
    headers = {name.decode(): value.decode() for name, value in raw_headers}
    response = {"body": body, "headers": headers, "status_code": status}
    output = scheduler_model().operation_model("GetSchedule").output_shape
    parsed = create_parser("rest-json").parse(response, output)
    assert status == error.status
    assert parsed["Error"] == {"Code": error.shape, "Message": 'text "ż"'}
    assert json.loads(body) == {"Message": 'text "ż"'}


def test_statuses_of_what_is_in_no_model() -> None:
    assert SCHEDULER_ERRORS["UnknownOperationException"].status == 404
    assert SCHEDULER_ERRORS["MissingAuthenticationTokenException"].status == 403
    assert {name: error.status for name, error in STS_ERRORS.items()} == {
        "AccessDeniedException": 403,
        "ExpiredTokenException": 403,
        "IncompleteSignatureException": 400,
        "InternalFailure": 500,
        "InvalidIdentityTokenException": 400,
        "InvalidSignatureException": 403,
        "MalformedPolicyDocumentException": 400,
        "PackedPolicyTooLargeException": 400,
        "ValidationException": 400,
        "MissingAuthenticationTokenException": 403,
        "SerializationException": 400,
        "ServiceUnavailable": 503,
        "UnknownOperationException": 400,
        "UnrecognizedClientException": 403,
    }
