"""The Query wire: forms and query strings to requests, results and errors to XML, or to JSON if
requested (docs/contract/protocol.md 1.3)."""

from __future__ import annotations

import re
from binascii import a2b_qp, b2a_base64
from collections.abc import Generator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import orjson

from queuegate.protocol.malformed import Malformed
from queuegate.protocol.names import invalid_characters
from queuegate.protocol.shapes import (
    STRING,
    Action,
    List,
    Map,
    Scalar,
    ServiceModel,
    Shape,
    Structure,
    parse_blob,
    parse_boolean,
    parse_integer,
    parse_timestamp,
)

MAX_PARAMETERS = 4096
_MAX_DEPTH = 10
_SHORT = 160
LONG_FORM = 65_536
"""Bytes from which on decoding a form yields to the event loop."""
_PIECE = 65_536
_MOST_TEXTS = 4096
_texts: dict[bytes, str] = {}
_FEW_ESCAPES = 48
_HEX = "0123456789abcdefABCDEF"
_BY_HEX = {f"{a}{b}".encode(): bytes.fromhex(a + b) for a in _HEX for b in _HEX}
_SWAPPED = bytes.maketrans(b"%=", b"=%")


def parse_form(encoded: bytes) -> dict[str, str]:
    """Return the parameters of a query string or a form body. The first value of a repeated name
    counts. A stray percent sign stands for itself. Raises Malformed for text that is not UTF-8, and
    for more than MAX_PARAMETERS parameters."""
    params: dict[str, str] = {}
    if not encoded:
        return params
    _check_count(encoded)
    for pair in encoded.split(b"&"):
        if pair:
            name, _, value = pair.partition(b"=")
            text = _remembered(value) if len(value) <= _SHORT else unescaped_text(value)
            params.setdefault(
                _remembered(name) if len(name) <= _SHORT else unescaped_text(name), text
            )
    return params


def read_form(encoded: bytes) -> Generator[None, None, dict[str, str]]:
    """Return the result of `parse_form`, and yield at least every 64 KiB."""
    _check_count(encoded)
    params: dict[str, str] = {}
    for pair in encoded.split(b"&"):
        if pair:
            name, _, value = pair.partition(b"=")
            text = yield from _read_text(name)
            params.setdefault(text, (yield from _read_text(value)))
            yield
    return params


def _check_count(encoded: bytes) -> None:
    if encoded.count(b"&") >= MAX_PARAMETERS:
        raise Malformed(f"The request has more than {MAX_PARAMETERS} parameters.")


def _read_text(encoded: bytes) -> Generator[None, None, str]:
    parts = []
    start = 0
    while len(encoded) - start > _PIECE:
        end = start + _PIECE
        # An escape at the end goes into the next piece.
        cut = encoded.find(b"%", end - 2, end)
        end = end if cut < 0 else cut
        parts.append(_unescaped(encoded[start:end]))
        start = end
        yield
    if not parts:
        return unescaped_text(encoded)
    parts.append(_unescaped(encoded[start:]))
    return utf8_text(b"".join(parts))


def _remembered(encoded: bytes) -> str:
    """Return the decoded text of a short value. Names, actions and ARNs repeat."""
    text = _texts.get(encoded)
    if text is None:
        text = unescaped_text(encoded)
        if len(_texts) >= _MOST_TEXTS:
            _texts.clear()
        _texts[encoded] = text
    return text


def unescaped_text(encoded: bytes) -> str:
    """Decode a name or a value of a form, in which a plus sign is a space."""
    return utf8_text(_unescaped(encoded))


def _unescaped(encoded: bytes) -> bytes:
    if b"+" in encoded:
        encoded = encoded.replace(b"+", b" ")
    return _unquoted(encoded) if b"%" in encoded else encoded


def utf8_text(encoded: bytes) -> str:
    """Decode UTF-8. Raises Malformed."""
    try:
        return encoded.decode("utf-8")
    except UnicodeDecodeError:
        raise Malformed("The request contains text that is not UTF-8.") from None


def _unquoted(encoded: bytes) -> bytes:
    """Return the result of `urllib.parse.unquote_to_bytes` without an object for each percent sign.

    Megabytes of escapes would delay every request; a few are decoded one by one at a third of the
    cost. With the two signs swapped these are the escapes of quoted-printable, which C decodes.
    Swapping back must spare the escaped characters: `=` starts as the other sign, and `%` takes its
    place. A stray sign is escaped if quoted-printable would interpret it.
    """
    if encoded.count(b"%") <= _FEW_ESCAPES:
        first, *rest = encoded.split(b"%")
        parts = [first]
        for part in rest:
            parts += (_BY_HEX.get(part[:2], b"%" + part[:2]), part[2:])
        return b"".join(parts)
    swapped = encoded.translate(_SWAPPED)
    swapped = swapped.replace(b"=3D", b"%").replace(b"=3d", b"%").replace(b"=25", b"=3D")
    # A second pass, because the first leaves pairs in a run of signs.
    swapped = swapped.replace(b"==", b"=3D=").replace(b"==", b"=3D=")
    swapped = swapped.replace(b"=\n", b"=3D\n").replace(b"=\r", b"=3D\r")
    if swapped.endswith(b"="):
        swapped += b"3D"
    return a2b_qp(swapped).translate(_SWAPPED)


_flat_names: dict[Structure, frozenset[str]] = {}


@dataclass(slots=True)
class _Node:
    """A dotted prefix: the value of the parameter of that name, and its continuations."""

    text: str | None = None
    children: dict[str, _Node] = field(default_factory=dict)

    def entries(self) -> list[_Node]:
        """Return children with a numeric name in the order of the numbers; gaps do not matter."""
        numbered = [
            (int(name), child)
            for name, child in self.children.items()
            if len(name) <= 9 and name.isascii() and name.isdigit()
        ]
        numbered.sort(key=lambda pair: pair[0])
        return [child for _, child in numbered]


def decode(structure: Structure, params: dict[str, str]) -> dict[str, Any]:
    """Return the members of the parameters, typed as `structure` says. Other parameters are
    ignored. The bare name of a list or a map is an empty one. Old forms without an index
    (`Attribute.Name`, `AttributeName`) are one entry. Unreadable numbers, booleans, blobs and
    timestamps, and map entries without a key, raise Malformed."""
    flat = _decode_flat(structure, params)
    if flat is not None:
        return flat
    root = _Node()
    for name, text in params.items():
        node = root
        for part in name.split(".", _MAX_DEPTH):
            child = node.children.get(part)
            if child is None:
                child = node.children[part] = _Node()
            node = child
        node.text = text
    return _read_structure(structure, root)


def _decode_flat(structure: Structure, params: dict[str, str]) -> dict[str, Any] | None:
    """Return the members of a request of scalars alone; None: there are others."""
    members = structure.members
    flat = _flat_names.get(structure)
    if flat is None:
        shapes = members.values()
        flat = frozenset(
            [shape.flat for shape in shapes if isinstance(shape, List | Map) and shape.flat]
        )
        _flat_names[structure] = flat
    result = {}
    for name, text in params.items():
        shape = members.get(name)
        if shape is STRING:
            result[name] = text
        elif isinstance(shape, Scalar):
            value = _read_scalar(shape, text)
            if value is not None:
                result[name] = value
        elif shape is not None or "." in name or name in flat:
            return None
    return result


def _read_structure(structure: Structure, node: _Node) -> dict[str, Any]:
    result = {}
    children = node.children
    for name, shape in structure.members.items():
        child = children.get(name)
        if isinstance(shape, List | Map) and shape.flat is not None:
            # The member's own name is what an old client sends for an empty list: the flat name
            # has the entries.
            child = children.get(shape.flat, child)
        if child is None:
            continue
        value = _read(shape, child)
        if value is not None:
            result[name] = value
    return result


def _read(shape: Shape, node: _Node) -> Any:
    """Return the value; None: the parameters hold none."""
    if isinstance(shape, Scalar):
        return None if node.text is None else _read_scalar(shape, node.text)
    if isinstance(shape, List):
        return _read_list(shape, node)
    if isinstance(shape, Map):
        return _read_map(shape, node)
    return _read_structure(shape, node) if node.children else None


def _read_scalar(shape: Scalar, text: str) -> Any:
    kind = shape.kind
    if kind == "string":
        return text
    if kind == "blob":
        return parse_blob(text)
    if not text:
        return None
    if kind == "boolean":
        return parse_boolean(text)
    if kind == "timestamp":
        return parse_timestamp(text)
    return parse_integer(kind, text)


def _read_list(shape: List, node: _Node) -> list[Any] | None:
    numbered = node if shape.flat else node.children.get("member")
    entries = numbered.entries() if numbered else []
    if not entries:
        if node.text is None:
            return None
        if node.text and isinstance(shape.item, Scalar):
            return [_read_scalar(shape.item, node.text)]
        return []
    values = (_read(shape.item, entry) for entry in entries)
    return [value for value in values if value is not None]


def _read_map(shape: Map, node: _Node) -> dict[str, Any] | None:
    numbered = node if shape.flat else node.children.get("entry")
    entries = numbered.entries() if numbered else []
    if numbered and shape.key_name in numbered.children:
        entries.append(numbered)
    if not entries:
        return None if node.text is None else {}
    result = {}
    for entry in entries:
        key = entry.children.get(shape.key_name)
        if key is None or key.text is None:
            raise Malformed(f"An entry of a map has no {shape.key_name}.")
        value = _read(shape.value, entry.children.get(shape.value_name) or _ABSENT)
        result[key.text] = _nothing(shape.value) if value is None else value
    return result


_ABSENT = _Node()


def _nothing(shape: Shape) -> Any:
    """Return the value of an entry without one: an empty text, or a structure without members."""
    if isinstance(shape, Scalar):
        return _read_scalar(shape, "")
    return [] if isinstance(shape, List) else {}


XML_CONTENT_TYPE = "text/xml"
JSON_CONTENT_TYPE = "application/json"

# XML 1.0 cannot express these characters, even escaped. Only texts that quote input may contain
# them.
_INEXPRESSIBLE = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
# A raw CR would reach the client as LF and break the MD5 of the body.
# Ids, numbers and ARNs need no escape, and are most of the output.
_PLAIN = re.compile(r"[A-Za-z0-9:._/-]{1,160}").fullmatch
# Number of characters that take a millisecond to escape.
_XML_PIECE = 65_536
_ESCAPES = (("<", "&lt;"), (">", "&gt;"), ('"', "&quot;"), ("\r", "&#xD;"))


def encode_result(
    service: ServiceModel, action: Action, result: dict[str, Any], request_id: str
) -> bytes:
    """Return the XML document of a success: `<ActionResponse>` with a Result element if the action
    has an output."""
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
    service: ServiceModel, action: Action, result: dict[str, Any], request_id: str
) -> Generator[None, None, list[bytes]]:
    """Yield the parts of `encode_result` for an output whose lists are flat."""
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
    """A text that is escaped already."""

    __slots__ = ()


def _with_long_texts_escaped(value: Any) -> Generator[None, None, Any]:
    if isinstance(value, dict):
        items = {}
        for key, item in value.items():
            items[key] = yield from _with_long_texts_escaped(item)
        return items
    if isinstance(value, bytes):
        value = _text(value)
    if not isinstance(value, str) or len(value) <= _XML_PIECE:
        return value
    pieces = []
    for start in range(0, len(value), _XML_PIECE):
        pieces.append(_escaped(value[start : start + _XML_PIECE]))
        yield
    joined = "".join(pieces)
    yield
    return _Escaped(joined)


def encode_error(
    service: ServiceModel, code: str, message: str, fault: str, request_id: str
) -> bytes:
    """Return the XML document of a refusal. `fault` is Sender or Receiver."""
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
    # str.translate takes ten times as long if the text has a quote or is not ASCII.
    text = text.replace("&", "&amp;")
    for character, escape in _ESCAPES:
        text = text.replace(character, escape)
    return text


def _write(parts: list[str], tag: str, shape: Shape, value: Any) -> None:
    if isinstance(shape, Scalar):
        text = _escaped(_text(value))
        parts.append(f"<{tag}>{text}</{tag}>" if text else f"<{tag}/>")
        return
    flat = None if isinstance(shape, Structure) else shape.flat
    inner = parts if flat else []
    if isinstance(shape, Structure):
        for name, member in shape.members.items():
            item = value.get(name)
            if item is not None:
                _write(inner, name, member, item)
    elif isinstance(shape, List):
        for item in value:
            _write(inner, flat or "member", shape.item, item)
    else:
        entry = flat or "entry"
        for key, item in value.items():
            inner.append(f"<{entry}><{shape.key_name}>{_escaped(key)}</{shape.key_name}>")
            _write(inner, shape.value_name, shape.value, item)
            inner.append(f"</{entry}>")
    if not flat:
        parts += (f"<{tag}>", *inner, f"</{tag}>") if inner else (f"<{tag}/>",)


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
    """Return the success of a Query GET with `Accept: application/json`. Empty lists of the result
    are null. Where the service flattens, lists have lower-camel names, and maps are lists of
    pairs."""
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
    """Yield the parts of `encode_result_as_json` for a result whose members are lists."""
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
    """Return the refusal of a Query GET with `Accept: application/json`."""
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
