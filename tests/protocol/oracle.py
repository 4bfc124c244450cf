"""botocore's own serializers and parsers, driven by its models: the other end of each wire."""

import json
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

# botocore has no type information.
from botocore.loaders import Loader  # type: ignore[import-untyped]
from botocore.model import ServiceModel  # type: ignore[import-untyped]
from botocore.parsers import create_parser  # type: ignore[import-untyped]
from botocore.serialize import create_serializer  # type: ignore[import-untyped]
from hypothesis import strategies as st

_RECORDING = Path(__file__).parent / "recordings" / "sqs_query_model.json"


@cache
def json_model() -> Any:
    """SQS as the installed botocore knows it: JSON only."""
    return ServiceModel(Loader().load_service_model("sqs", "service-2"))


@cache
def query_model() -> Any:
    """SQS as botocore knew it in its last release with the Query protocol."""
    return ServiceModel(json.loads(_RECORDING.read_text(encoding="utf-8")))


@cache
def sns_model() -> Any:
    """SNS as the installed botocore knows it: Query only."""
    return ServiceModel(Loader().load_service_model("sns", "service-2"))


@cache
def scheduler_model() -> Any:
    """EventBridge Scheduler as the installed botocore knows it: rest-json only."""
    return ServiceModel(Loader().load_service_model("scheduler", "service-2"))


def model_of_query(service: str) -> Any:
    """The model of the Query wire of sqs or sns."""
    return {"sqs": query_model, "sns": sns_model}[service]()


@cache
def model_of_json(service: str) -> Any:
    """The model of the JSON wire. No SDK speaks it to SNS, whose Query model is told to."""
    if service == "sqs":
        return json_model()
    model = Loader().load_service_model(service, "service-2")
    wire = {"protocol": "json", "jsonVersion": "1.0", "targetPrefix": f"Amazon{service.upper()}"}
    return ServiceModel({**model, "metadata": {**model["metadata"], **wire}})


def json_request(
    action: str, params: dict[str, Any], service: str = "sqs"
) -> tuple[dict[str, str], bytes]:
    """Headers with lower-case names, and the body."""
    serializer = create_serializer("json", include_validation=False)
    operation = model_of_json(service).operation_model(action)
    request = serializer.serialize_to_request(params, operation)
    headers = {name.lower(): str(value) for name, value in request["headers"].items()}
    return headers, request["body"]


def query_request(action: str, params: dict[str, Any], service: str = "sqs") -> dict[str, Any]:
    serializer = create_serializer("query", include_validation=False)
    operation = model_of_query(service).operation_model(action)
    request = serializer.serialize_to_request(params, operation)
    form: dict[str, Any] = request["body"]
    return form


def parse_json(
    action: str,
    body: bytes,
    status: int = 200,
    headers: dict[str, str] | None = None,
    service: str = "sqs",
) -> dict[str, Any]:
    output = model_of_json(service).operation_model(action).output_shape
    return _parse("json", output, body, status, headers or {})


def parse_query(
    action: str, body: bytes, status: int = 200, service: str = "sqs"
) -> dict[str, Any]:
    output = model_of_query(service).operation_model(action).output_shape
    return _parse("query", output, body, status, {"content-type": "text/xml"})


def _parse(
    protocol: str, output: Any, body: bytes, status: int, headers: dict[str, str]
) -> dict[str, Any]:
    response = {"body": body, "headers": headers, "status_code": status}
    parsed: dict[str, Any] = create_parser(protocol).parse(response, output)
    return parsed


_INTEGERS = {
    "integer": st.integers(-(2**31), 2**31 - 1),
    "long": st.integers(-(2**63), 2**63 - 1),
}


def values(shape: Any, text: st.SearchStrategy[str]) -> st.SearchStrategy[Any]:
    """Values of a botocore shape; lists and maps are never empty: the wires do not show those."""
    kind = shape.type_name
    if kind == "structure":
        members = {name: values(member, text) for name, member in shape.members.items()}
        return st.fixed_dictionaries({}, optional=members)
    if kind == "list":
        return st.lists(values(shape.member, text), min_size=1, max_size=3)
    if kind == "map":
        return st.dictionaries(text, values(shape.value, text), min_size=1, max_size=3)
    if kind == "boolean":
        return st.booleans()
    if kind == "blob":
        return st.binary(max_size=20)
    return _INTEGERS.get(kind, text)


def full_example(shape: Any) -> Any:
    """One value with every member of a botocore shape, at every depth."""
    kind = shape.type_name
    if kind == "structure":
        return {name: full_example(member) for name, member in shape.members.items()}
    if kind == "list":
        return [full_example(shape.member), full_example(shape.member)]
    if kind == "map":
        return {key: full_example(shape.value) for key in ("key one", 'k&"<>\r\n2')}
    scalars = {
        "boolean": True,
        "blob": b"\x00\xff+/",
        "integer": 41,
        "long": 1_700_000_000_000,
        "timestamp": datetime(2026, 11, 21, 10, tzinfo=UTC),
    }
    return scalars.get(kind, f'{shape.name} & <"text"> = 100% +\r\n żółć 😀')
