"""The Query wire, outbound: results and errors as XML, or as JSON where a client asks for it
(docs/contract/protocol.md 1.3)."""

import re
from binascii import b2a_base64
from collections.abc import Generator
from datetime import UTC, datetime
from typing import Any

import orjson

from queuegate.protocol.names import invalid_characters
from queuegate.protocol.shapes import Action, List, Map, Service, Shape, Structure

XML_CONTENT_TYPE = "text/xml"
JSON_CONTENT_TYPE = "application/json"

# XML 1.0 cannot express these at all, not even escaped. Bodies never contain them; texts that
# quote input may.
_INEXPRESSIBLE = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
# A raw CR would reach the client as LF and break the MD5 of the body.
# Ids, numbers, ARNs: most of what is written, and quickly seen to need no escape.
_PLAIN = re.compile(r"[A-Za-z0-9:._/-]{1,160}").fullmatch
# Characters of which escaping takes a millisecond.
_PIECE = 65_536
_ESCAPES = (("<", "&lt;"), (">", "&gt;"), ('"', "&quot;"), ("\r", "&#xD;"))


def encode_result(
    service: Service, action: Action, result: dict[str, Any], request_id: str
) -> bytes:
    """The XML document of a success: `<ActionResponse>` with a Result element if the action has
    an output.
    """
    name = action.name
    parts = [service.xml_prolog, f'<{name}Response xmlns="{service.xml_namespace}">']
    if action.output is not None:
        _write(parts, f"{name}Result", action.output, result)
    parts.append(
        f"<ResponseMetadata><RequestId>{_escaped(request_id)}</RequestId></ResponseMetadata>"
        f"</{name}Response>"
    )
    return "".join(parts).encode()


def encode_in_steps(
    service: Service, action: Action, result: dict[str, Any], request_id: str
) -> Generator[None, None, list[bytes]]:
    """Yield what `encode_result` returns, in parts, between which others can have their turn. The
    output is a structure whose lists are flat."""
    assert action.output is not None
    name = action.name
    parts = [f'{service.xml_prolog}<{name}Response xmlns="{service.xml_namespace}"><{name}Result>']
    encoded = []
    for member, shape in action.output.members.items():
        for item in result.get(member, ()):
            _write(parts, member, shape, [(yield from _with_long_texts_escaped(item))])
            yield
            text = "".join(parts)
            parts.clear()
            yield
            encoded.append(text.encode())
            yield
    parts.append(
        f"</{name}Result><ResponseMetadata><RequestId>{_escaped(request_id)}</RequestId>"
        f"</ResponseMetadata></{name}Response>"
    )
    return [*encoded, "".join(parts).encode()]


class _Escaped(str):
    """A text that `_escaped` leaves as it is."""

    __slots__ = ()


def _with_long_texts_escaped(value: Any) -> Generator[None, None, Any]:
    if isinstance(value, dict):
        items = {}
        for key, item in value.items():
            items[key] = yield from _with_long_texts_escaped(item)
        return items
    if isinstance(value, bytes):
        value = _text(value)
    if not isinstance(value, str) or len(value) <= _PIECE:
        return value
    pieces = []
    for start in range(0, len(value), _PIECE):
        pieces.append(_escaped(value[start : start + _PIECE]))
        yield
    joined = "".join(pieces)
    yield
    return _Escaped(joined)


def encode_error(service: Service, code: str, message: str, fault: str, request_id: str) -> bytes:
    """The XML document of a refusal. `fault` is Sender or Receiver."""
    detail = "<Detail/>" if service.xml_error_detail else ""
    return (
        f'{service.xml_prolog}<ErrorResponse xmlns="{service.xml_namespace}"><Error>'
        f"<Type>{fault}</Type><Code>{_escaped(code)}</Code><Message>{_escaped(message)}</Message>"
        f"{detail}</Error><RequestId>{_escaped(request_id)}</RequestId></ErrorResponse>"
    ).encode()


def _escaped(text: str) -> str:
    if _PLAIN(text) is not None:
        return text
    if isinstance(text, _Escaped):
        return text
    if invalid_characters(text):
        text = _INEXPRESSIBLE.sub("\ufffd", text)
    # str.translate takes ten times as long once the text has a quote or is not ASCII.
    text = text.replace("&", "&amp;")
    for character, escape in _ESCAPES:
        text = text.replace(character, escape)
    return text


def _write(parts: list[str], tag: str, shape: Shape, value: Any) -> None:
    if isinstance(shape, Structure):
        inner: list[str] = []
        for name, member in shape.members.items():
            item = value.get(name)
            if item is not None:
                _write(inner, name, member, item)
        _wrap(parts, tag, inner)
    elif isinstance(shape, List):
        if shape.flat:
            _write_items(parts, shape.flat, shape, value)
        else:
            inner = []
            _write_items(inner, "member", shape, value)
            _wrap(parts, tag, inner)
    elif isinstance(shape, Map):
        if shape.flat:
            _write_entries(parts, shape.flat, shape, value)
        else:
            inner = []
            _write_entries(inner, "entry", shape, value)
            _wrap(parts, tag, inner)
    else:
        text = _escaped(_text(value))
        parts.append(f"<{tag}>{text}</{tag}>" if text else f"<{tag}/>")


def _wrap(parts: list[str], tag: str, inner: list[str]) -> None:
    if inner:
        parts.append(f"<{tag}>")
        parts += inner
        parts.append(f"</{tag}>")
    else:
        parts.append(f"<{tag}/>")


def _write_items(parts: list[str], tag: str, shape: List, values: list[Any]) -> None:
    for value in values:
        _write(parts, tag, shape.item, value)


def _write_entries(parts: list[str], tag: str, shape: Map, values: dict[str, Any]) -> None:
    for key, value in values.items():
        parts.append(f"<{tag}><{shape.key_name}>{_escaped(key)}</{shape.key_name}>")
        _write(parts, shape.value_name, shape.value, value)
        parts.append(f"</{tag}>")


def _text(value: object) -> str:
    if value is True:
        return "true"
    if value is False:
        return "false"
    if isinstance(value, bytes):
        return b2a_base64(value, newline=False).decode("ascii")
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return value if isinstance(value, str) else str(value)


def encode_result_as_json(action: Action, result: dict[str, Any], request_id: str) -> bytes:
    """The same success for a Query GET with `Accept: application/json`.

    The lists of the result are null when there is nothing. Where the service flattens, they have
    lower-camel names, and maps are lists of pairs.
    """
    response: dict[str, Any] = {}
    if action.output is not None:
        returned = {}
        for name, shape in action.output.members.items():
            value = result.get(name)
            if isinstance(shape, List):
                shown = name[0].lower() + name[1:] if shape.flat else name
                returned[shown] = _plain(shape, value) if value else None
            elif value is not None:
                returned[name] = _plain(shape, value)
        response[f"{action.name}Result"] = returned
    response["ResponseMetadata"] = {"RequestId": request_id}
    return orjson.dumps({f"{action.name}Response": response})


def encode_as_json_in_steps(
    action: Action, result: dict[str, Any], request_id: str
) -> Generator[None, None, list[bytes]]:
    """Yield what `encode_result_as_json` returns, in parts, between which others can have their
    turn. The members of the result are lists."""
    shown: dict[str, list[orjson.Fragment]] = {}
    assert action.output is not None
    for name, items in result.items():
        shape = action.output.members[name]
        assert isinstance(shape, List)
        shown[name] = []
        for item in items:
            shown[name].append(orjson.Fragment(orjson.dumps(_plain(shape.item, item))))
            yield
    return [encode_result_as_json(action, shown, request_id)]


def encode_error_as_json(code: str, message: str, fault: str, request_id: str) -> bytes:
    """The same refusal for a Query GET with `Accept: application/json`."""
    error = {"Code": code, "Message": message, "Type": fault}
    return orjson.dumps({"Error": error, "RequestId": request_id})


def _plain(shape: Shape, value: Any) -> Any:
    if isinstance(value, orjson.Fragment):
        return value
    if isinstance(shape, Structure):
        return {
            name: _plain(member, value[name])
            for name, member in shape.members.items()
            if value.get(name) is not None
        }
    if isinstance(shape, List):
        return [_plain(shape.item, item) for item in value]
    if isinstance(shape, Map) and shape.flat is None:
        return {key: _plain(shape.value, item) for key, item in value.items()}
    if isinstance(shape, Map):
        return [
            {shape.key_name: key, shape.value_name: _plain(shape.value, item)}
            for key, item in value.items()
        ]
    return _text(value) if isinstance(value, bytes | datetime) else value
