"""The OpenAPI 3.1 document of a face, made of the declarations that validate requests."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from http import HTTPStatus
from importlib.metadata import version
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct, inspect

from queuegate.gateway.faces.interface import DOCUMENT
from queuegate.gateway.faces.json.json_endpoints import Answer, Answered, Call, Endpoint

_SCHEMA = "#/components/schemas/{name}"
_REFUSALS: Mapping[int, str] = {
    400: "The request is invalid. The text names the rule and the allowed values.",
    401: "The key is missing or invalid.",
    403: "The credentials are missing or invalid, or lack the permission.",
    404: "The resource does not exist.",
    405: "The path does not support this method. The header Allow lists the methods.",
    409: "The resource exists with other settings, or its state does not allow the operation.",
    413: "The body exceeds the limit of the gateway.",
    422: "The request is invalid.",
    429: "A limit of rate or size is reached. Retry later.",
    503: "The database is unavailable. Retry after the seconds in Retry-After.",
}


class FaceDescription(NamedTuple):
    """The description of a face in its document."""

    title: str
    text: str
    tags: Mapping[str, str]
    """Name -> description, in their order."""
    credentials: str
    """The value of the header with the credentials."""
    error: type[Struct] | type[str]
    """The body of every refusal. The docstring of a Struct is its description."""
    needs_credentials: bool = True
    """False: anonymous callers are allowed, too."""
    header: str = "Authorization"
    """The header with the credentials."""
    media_type: str = "application/json"
    """The type of the bodies of requests and refusals."""
    always: tuple[int, ...] = (400, 403, 413, 503)
    """Statuses of refusals of every endpoint."""


def with_document(
    endpoints: tuple[Endpoint, ...], prefix: str, about: FaceDescription
) -> tuple[Endpoint, ...]:
    """Return these endpoints and the endpoint of their document."""

    @cache
    def document() -> dict[str, Any]:
        return openapi_document(everything, about)

    async def get_open_api(call: Call) -> Answer[dict[str, Any]]:
        # The first request makes the document, which takes long: a thread keeps the loop free.
        made = await asyncio.to_thread(document)
        return Answer(200, made | {"servers": [{"url": call.request.base_url}]})

    own = Endpoint(
        "GET",
        prefix + DOCUMENT,
        "getOpenApi",
        "This document",
        f"Describes every endpoint below `{prefix}` in OpenAPI 3.1. Needs no credentials.",
        "about",
        get_open_api,
        (Answered(200, dict[str, Any], "The document."),),
        right="",
        refusals=(),
        public=True,
    )
    everything = (*endpoints, own)
    return everything


def openapi_document(endpoints: Iterable[Endpoint], about: FaceDescription) -> dict[str, Any]:
    """Return the document without ``servers``. Equal endpoints have equal documents."""
    shown = sorted(endpoints, key=lambda one: (one.path, one.method))
    kinds = [kind for endpoint in shown for kind in _kinds(endpoint)]
    (*schemas, error), components = msgspec.json.schema_components(
        [*kinds, about.error], ref_template=_SCHEMA
    )
    schema_of = iter(schemas)
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in shown:
        spoken = {id(kind): next(schema_of) for kind in _kinds(endpoint)}
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = _operation(
            endpoint, about, spoken, components
        )
    used = {endpoint.tag for endpoint in shown}
    statuses = {*about.always, *(status for endpoint in shown for status in endpoint.refusals)}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": about.title,
            "version": version("queuegate"),
            "description": about.text,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "tags": [
            {"name": name, "description": text} for name, text in about.tags.items() if name in used
        ],
        "security": [{"credentials": []}, *([] if about.needs_credentials else [{}])],
        "paths": paths,
        "components": {
            "schemas": _without_parameters(components, shown),
            "responses": {
                str(status): _refusal(status, {about.media_type: {"schema": error}})
                for status in sorted(statuses)
            },
            "securitySchemes": {
                "credentials": {
                    "type": "apiKey",
                    "in": "header",
                    "name": about.header,
                    "description": about.credentials,
                }
            },
        },
    }


def _kinds(endpoint: Endpoint) -> Iterator[Any]:
    """Yield the types of an endpoint in a fixed order."""
    for kind in (endpoint.path_params, endpoint.query, endpoint.body):
        if kind is not None:
            yield kind
    for answer in endpoint.answers:
        yield from _forms(answer)


def _forms(answer: Answered) -> tuple[Any, ...]:
    """Return the alternative types of the body of an answer."""
    if answer.type is None:
        return ()
    return answer.type if isinstance(answer.type, tuple) else (answer.type,)


def _operation(
    endpoint: Endpoint,
    about: FaceDescription,
    schemas: Mapping[int, Any],
    components: Mapping[str, Any],
) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": endpoint.name,
        "summary": endpoint.summary,
        "description": endpoint.description,
        "tags": [endpoint.tag],
    }
    if endpoint.public:
        operation["security"] = []
    parameters = [
        *_parameters(endpoint.path_params, "path", components),
        *_parameters(endpoint.query, "query", components),
    ]
    if parameters:
        operation["parameters"] = parameters
    if endpoint.body is not None:
        content: dict[str, Any] = {"schema": schemas[id(endpoint.body)]}
        content["examples"] = {
            name: {"value": value} for name, value in examples_of(endpoint).items()
        }
        operation["requestBody"] = {
            "required": not endpoint.body_is_optional,
            "content": {about.media_type: content},
        }
    responses = {str(one.status): _success(one, schemas) for one in endpoint.answers}
    unknown = {401, 403} if endpoint.public else set()
    for status in sorted({*about.always, *endpoint.refusals} - unknown):
        responses[str(status)] = {"$ref": f"#/components/responses/{status}"}
    operation["responses"] = responses
    return operation


def examples_of(endpoint: Endpoint) -> dict[str, Any]:
    """Return the examples of a body by name."""
    example = endpoint.example
    if isinstance(example, dict) and set(example) == {"examples"}:
        return dict(example["examples"])
    implied = _implied(inspect.type_info(endpoint.body))
    return {"default": implied if example is None else example}


def _parameters(kind: Any, place: str, components: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield one parameter for each field of the type."""
    if kind is None:
        return
    information = inspect.type_info(kind)
    assert isinstance(information, inspect.StructType)
    schema = components[kind.__name__]
    for one in information.fields:
        about = _without_null(schema["properties"][one.encode_name])
        parameter = {"name": one.encode_name, "in": place, "required": one.required}
        if "description" in about:
            parameter["description"] = about.pop("description")
        yield parameter | {"schema": about}


def _without_null(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema without null, which a parameter cannot express."""
    about = dict(schema)
    if about.get("default", 0) is None:
        del about["default"]
    if "anyOf" in about:
        kinds = [one for one in about["anyOf"] if one.get("type") != "null"]
        if len(kinds) == 1:
            del about["anyOf"]
            about = kinds[0] | about
        else:
            about["anyOf"] = kinds
    return about


def _without_parameters(
    components: Mapping[str, Any], endpoints: Iterable[Endpoint]
) -> dict[str, Any]:
    """Return the schemas with references. Parameters are inlined in their operations."""
    spelt = {
        kind.__name__
        for endpoint in endpoints
        for kind in (endpoint.path_params, endpoint.query)
        if kind is not None
    }
    return {name: components[name] for name in sorted(components) if name not in spelt}


def _success(answer: Answered, schemas: Mapping[int, Any]) -> dict[str, Any]:
    response: dict[str, Any] = {"description": answer.text}
    if answer.headers:
        response["headers"] = {
            name: {"description": text, "schema": {"type": "string"}}
            for name, text in answer.headers.items()
        }
    forms = [schemas[id(kind)] for kind in _forms(answer)]
    if forms:
        content: dict[str, Any] = {"schema": forms[0] if len(forms) == 1 else {"anyOf": forms}}
        if (shown := example_of(answer)) is not None:
            content["example"] = shown
        response["content"] = {answer.media_type: content}
    if answer.links:
        response["links"] = {
            name: {"operationId": name, "parameters": dict(parameters)}
            for name, parameters in answer.links.items()
        }
    return response


def example_of(answer: Answered) -> Any:
    """Return the example of an answer with a body. Null: it has none."""
    implied = _implied(inspect.type_info(_forms(answer)[0]))
    if isinstance(implied, dict):
        return implied | (answer.example or {})
    return implied if answer.example is None else answer.example


def _implied(kind: inspect.Type) -> Any:
    """Return an example with each required member, and with others that have an ``example``.

    Types imply null, False, the first choice, or one instant.
    """
    if isinstance(kind, inspect.Metadata):
        examples = (kind.extra_json_schema or {}).get("examples", [])
        return (kind.extra or {}).get("example", examples[0] if examples else _implied(kind.type))
    if isinstance(kind, inspect.UnionType):
        is_null = any(isinstance(one, inspect.NoneType) for one in kind.types)
        return None if is_null and not _has_example(kind.types[0]) else _implied(kind.types[0])
    if isinstance(kind, inspect.StructType):
        return {
            one.encode_name: _implied(one.type)
            for one in kind.fields
            if one.required or _has_example(one.type)
        }
    if isinstance(kind, inspect.ListType):
        return [_implied(kind.item_type)]
    if isinstance(kind, inspect.LiteralType):
        return kind.values[0]
    return _IMPLIED.get(type(kind))


_IMPLIED: Mapping[type[inspect.Type], Any] = {
    inspect.BoolType: False,
    inspect.DateTimeType: "2030-01-31T09:00:00Z",
    inspect.IntType: 0,
}


def _has_example(kind: inspect.Type) -> bool:
    if isinstance(kind, inspect.UnionType):
        return any(map(_has_example, kind.types))
    return isinstance(kind, inspect.Metadata) and "example" in (kind.extra or {})


def _refusal(status: int, content: Mapping[str, Any]) -> dict[str, Any]:
    text = _REFUSALS.get(status, HTTPStatus(status).phrase)
    response: dict[str, Any] = {"description": text, "content": content}
    if status == 503:
        about = {"description": "Seconds.", "schema": {"type": "integer"}}
        response["headers"] = {"Retry-After": about}
    return response
