"""`python -m docs.site.openapi FOLDER`: write the OpenAPI document of each API as a page."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from queuegate.gateway.faces.json.json_openapi import openapi_document

# Name of the page -> the document, and the module that declares its endpoints.
DOCUMENTS = {
    "native-api": ("/v1/openapi.json", "queuegate.gateway.faces.rest.rest_face"),
    "simple-queue": ("/api/openapi.json", "queuegate.gateway.faces.simple_face"),
    "text-queue": ("/queue/openapi.json", "queuegate.gateway.faces.text_face"),
    "channels": ("/v1/channels/openapi.json", "queuegate.gateway.faces.channels.channels_face"),
    "logs": ("/v1/logs/openapi.json", "queuegate.gateway.faces.logs.logs_face"),
    "testers": ("/_admin/openapi.json", "queuegate.gateway.pages.admin_pages"),
}

_Schema = Mapping[str, Any]


def page_of(document: Mapping[str, Any], title: str, path: str) -> str:
    """Return an OpenAPI document as a page: operations by tag, then the schemas."""
    about = document["info"]
    lines = [f"# {title}", "", f"A gateway serves this document at `{path}`.", ""]
    lines += [about["description"], ""]
    for tag in document["tags"]:
        lines += [f"## {tag['name'].capitalize()}", "", tag["description"], ""]
        for where, methods in document["paths"].items():
            for method, operation in methods.items():
                if tag["name"] in operation["tags"]:
                    lines += _operation(f"{method.upper()} {where}", operation, document)
    lines += ["## Schemas", ""]
    for name, schema in document["components"]["schemas"].items():
        lines += [f"### {name}", ""]
        lines += [schema["description"], ""] if "description" in schema else []
        lines += _members(schema)
    return "\n".join(lines)


def _operation(title: str, operation: Mapping[str, Any], document: _Schema) -> Iterator[str]:
    yield from (f"### {operation['summary']}", "", f"`{title}`", "", operation["description"], "")
    if parameters := operation.get("parameters"):
        yield from ("| Parameter | In | Type | |", "| --- | --- | --- | --- |")
        for one in parameters:
            words = _words(one, one["schema"], is_required=one["required"])
            yield f"| `{one['name']}` | {one['in']} | {_type(one['schema'])} | {words} |"
        yield ""
    for media, content in operation.get("requestBody", {}).get("content", {}).items():
        yield from (f"Body, `{media}`: {_type(content['schema'])}", "")
        for example in content["examples"].values():
            yield from _example(example["value"])
    yield from ("| Status | Body | |", "| --- | --- | --- |")
    examples = []
    for status, answer in operation["responses"].items():
        name = answer.get("$ref", "").rpartition("/")[2]
        shown = document["components"]["responses"][name] if name else answer
        kinds = [_type(one["schema"]) for one in shown.get("content", {}).values()]
        headers = "".join(
            f" `{header}`: {_cell(one['description'])}"
            for header, one in shown.get("headers", {}).items()
        )
        yield f"| {status} | {', '.join(kinds)} | {_cell(shown['description'])}{headers} |"
        contents = () if name else shown.get("content", {}).values()
        examples += [one["example"] for one in contents if "example" in one]
    yield ""
    for example in examples[:1]:
        yield from ("An answer:", "", *_example(example))


def _members(schema: _Schema) -> Iterator[str]:
    if "properties" not in schema:
        yield from (_type(schema), "")
        return
    yield from ("| Member | Type | |", "| --- | --- | --- |")
    for name, one in schema["properties"].items():
        words = _words(one, one, is_required=name in schema.get("required", ()))
        yield f"| `{name}` | {_type(one)} | {words} |"
    yield ""


def _words(described: _Schema, schema: _Schema, *, is_required: bool) -> str:
    """Return a description with the bounds that the schema has."""
    bounds = [
        f"{label} `{json.dumps(schema[key])}`."
        for key, label in (
            ("minimum", "At least"),
            ("exclusiveMinimum", "More than"),
            ("maximum", "At most"),
            ("minLength", "Shortest length"),
            ("maxLength", "Longest length"),
            ("minItems", "Fewest items"),
            ("maxItems", "Most items"),
            ("pattern", "Pattern"),
            ("default", "Default"),
        )
        if key in schema and schema[key] is not None
    ]
    text = _cell(described.get("description", ""))
    return " ".join([*(["Required."] if is_required else []), *([text] if text else []), *bounds])


def _type(schema: _Schema) -> str:
    """Return a type in a few words, with a link where the page has it."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    for key in ("anyOf", "oneOf"):
        if key in schema:
            return " or ".join(dict.fromkeys(_type(one) for one in schema[key]))
    if "enum" in schema or "const" in schema:
        values = schema.get("enum", [schema.get("const")])
        return ", ".join(f"`{json.dumps(value)}`" for value in values)
    kind = schema.get("type", "any")
    kinds = kind if isinstance(kind, list) else [kind]
    if "prefixItems" in schema:
        return f"array of {' and '.join(_type(one) for one in schema['prefixItems'])}"
    if kinds == ["array"] and "items" in schema:
        return f"array of {_type(schema['items'])}"
    return " or ".join(kinds)


def _example(value: Any) -> list[str]:
    if isinstance(value, str):
        return ["```", value, "```", ""]
    return ["```json", json.dumps(value, indent=2, ensure_ascii=False), "```", ""]


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def main(folder: Path) -> None:
    """Write all pages."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, (path, module_name) in DOCUMENTS.items():
        module = importlib.import_module(module_name)
        document = openapi_document(module.ENDPOINTS, module.ABOUT)
        page = page_of(document, name.capitalize().replace("-", " "), path)
        (folder / f"{name}.md").write_text(page, "utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
