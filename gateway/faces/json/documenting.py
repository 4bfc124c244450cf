"""The OpenAPI 3.1 document of a face, from the declarations that validate requests, and where it
is."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from http import HTTPStatus
from importlib.metadata import version
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct, inspect

from queuegate.gateway.faces.face import DOCUMENT
from queuegate.gateway.faces.json.endpoints import Answer, Answered, Call, Endpoint

_SCHEMA = "#/components/schemas/{name}"
_REFUSALS: Mapping[int, str] = {
    400: "The request breaks a rule; the text says which, and what is allowed.",
    401: "The key is missing, or is none.",
    403: "There are no credentials.",
    404: "It does not exist.",
    405: "The path has no such method; the header Allow names those that it has.",
    409: "It is there already, and different, or its state does not allow this.",
    413: "The body is larger than this gateway takes.",
    422: "The request cannot be carried out.",
    429: "Too much at once.",
    503: "The database does not answer. Try again after the seconds in Retry-After.",
}


class About(NamedTuple):
    """What a document says of its face."""

    title: str
    text: str
    tags: Mapping[str, str]
    """Name -> description, in their order."""
    credentials: str
    """What that header has to hold."""
    error: type[Struct] | type[str]
    """The body of every refusal; of a Struct the docstring is the description."""
    needs_credentials: bool = True
    """False: who has none is somebody, too."""
    header: str = "Authorization"
    """Where credentials are."""
    media_type: str = "application/json"
    """Of the bodies of requests and refusals."""
    always: tuple[int, ...] = (400, 403, 413, 503)
    """Statuses with which every endpoint refuses."""


def described(endpoints: tuple[Endpoint, ...], prefix: str, about: About) -> tuple[Endpoint, ...]:
    """These endpoints, and the one whose answer is the document of all of them."""

    @cache
    def document() -> dict[str, Any]:
        return openapi_document(everything, about)

    async def get_document(call: Call) -> Answer:
        # Made at the first request for it, which takes a while.
        made = await asyncio.to_thread(document)
        return Answer(200, made | {"servers": [{"url": call.request.base_url}]})

    own = Endpoint(
        "GET",
        prefix + DOCUMENT,
        "getOpenApi",
        "This document",
        f"Describes every endpoint below `{prefix}` in OpenAPI 3.1; takes no credentials.",
        "about",
        get_document,
        (Answered(200, dict[str, Any], "The document."),),
        right="",
        refusals=(),
        public=True,
    )
    everything = (*endpoints, own)
    return everything


def openapi_document(endpoints: Iterable[Endpoint], about: About) -> dict[str, Any]:
    """The document without ``servers``; the same for the same endpoints."""
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
    """The types that an endpoint speaks of, in a fixed order."""
    for kind in (endpoint.path_params, endpoint.query, endpoint.body):
        if kind is not None:
            yield kind
    for answer in endpoint.answers:
        yield from _forms(answer)


def _forms(answer: Answered) -> tuple[Any, ...]:
    """The types that the body of an answer may have."""
    if answer.type is None:
        return ()
    return answer.type if isinstance(answer.type, tuple) else (answer.type,)


def _operation(
    endpoint: Endpoint, about: About, schemas: Mapping[int, Any], components: Mapping[str, Any]
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
        content["examples"] = _examples(endpoint)
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


def _examples(endpoint: Endpoint) -> dict[str, Any]:
    example = endpoint.example
    if isinstance(example, dict) and set(example) == {"examples"}:
        return {name: {"value": value} for name, value in example["examples"].items()}
    return {"default": {"value": example}}


def _parameters(kind: Any, place: str, components: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """One parameter for each field of the type."""
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
    """A parameter is there or not; null cannot be written."""
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
    """The schemas that are referred to: parameters are spelt out where they are used."""
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
        if answer.example is not None:
            content["example"] = answer.example
        response["content"] = {answer.media_type: content}
    if answer.links:
        response["links"] = {
            name: {"operationId": name, "parameters": dict(parameters)}
            for name, parameters in answer.links.items()
        }
    return response


def _refusal(status: int, content: Mapping[str, Any]) -> dict[str, Any]:
    text = _REFUSALS.get(status, HTTPStatus(status).phrase)
    response: dict[str, Any] = {"description": text, "content": content}
    if status == 503:
        about = {"description": "Seconds.", "schema": {"type": "integer"}}
        response["headers"] = {"Retry-After": about}
    return response
