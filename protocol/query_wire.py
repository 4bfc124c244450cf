"""The Query wire, inbound: forms and query strings to requests (docs/contract/protocol.md 1.3)."""

from binascii import a2b_qp
from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Any

from queuegate.protocol.errors import Malformed
from queuegate.protocol.scalars import parse_blob, parse_boolean, parse_integer, parse_timestamp
from queuegate.protocol.shapes import STRING, List, Map, Scalar, Shape, Structure

MAX_PARAMETERS = 4096
_MAX_DEPTH = 10
_SHORT = 160
LONG_FORM = 65_536
"""Bytes from which on decoding a form takes long enough for others to have their turn."""
_PIECE = 65_536
_MOST_TEXTS = 4096
_texts: dict[bytes, str] = {}
_FEW_ESCAPES = 48
_HEX = "0123456789abcdefABCDEF"
_BY_HEX = {f"{a}{b}".encode(): bytes.fromhex(a + b) for a in _HEX for b in _HEX}
_SWAPPED = bytes.maketrans(b"%=", b"=%")


def parse_form(encoded: bytes) -> dict[str, str]:
    """The parameters of a query string or a form body; of a repeated name the first value counts.

    A stray percent sign stands for itself. Raises Malformed for text that is not UTF-8, and for
    more than MAX_PARAMETERS parameters.
    """
    params: dict[str, str] = {}
    if not encoded:
        return params
    _check_count(encoded)
    for pair in encoded.split(b"&"):
        if pair:
            name, _, value = pair.partition(b"=")
            text = _remembered(value) if len(value) <= _SHORT else _decoded(value)
            params.setdefault(_remembered(name) if len(name) <= _SHORT else _decoded(name), text)
    return params


def read_form(encoded: bytes) -> Generator[None, None, dict[str, str]]:
    """What `parse_form` returns; others can have their turn whenever this yields, which is after
    64 KiB at the latest."""
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
        # An escape that the end would cut goes into the next piece.
        cut = encoded.find(b"%", end - 2, end)
        end = end if cut < 0 else cut
        parts.append(_unescaped(encoded[start:end]))
        start = end
        yield
    if not parts:
        return _decoded(encoded)
    parts.append(_unescaped(encoded[start:]))
    return _text_of(b"".join(parts))


def _remembered(encoded: bytes) -> str:
    """Names, actions and ARNs come again and again: the decoded text of what is short."""
    text = _texts.get(encoded)
    if text is None:
        text = _decoded(encoded)
        if len(_texts) >= _MOST_TEXTS:
            _texts.clear()
        _texts[encoded] = text
    return text


def _decoded(encoded: bytes) -> str:
    return _text_of(_unescaped(encoded))


def _unescaped(encoded: bytes) -> bytes:
    if b"+" in encoded:
        encoded = encoded.replace(b"+", b" ")
    return _unquoted(encoded) if b"%" in encoded else encoded


def _text_of(encoded: bytes) -> str:
    try:
        return encoded.decode("utf-8")
    except UnicodeDecodeError:
        raise Malformed("The request contains text that is not UTF-8.") from None


def _unquoted(encoded: bytes) -> bytes:
    """What `urllib.parse.unquote_to_bytes` returns, without an object for every percent sign:
    megabytes of them would hold up everybody. A few are a third of the work one by one.

    With the two signs swapped these are the escapes of quoted-printable, which C decodes. Swapping
    back must spare what was escaped: `=` goes as the other sign from the start, and `%` in its
    stead. A stray sign is escaped where quoted-printable would take it for something else.
    """
    if encoded.count(b"%") <= _FEW_ESCAPES:
        first, *rest = encoded.split(b"%")
        parts = [first]
        for part in rest:
            parts += (_BY_HEX.get(part[:2], b"%" + part[:2]), part[2:])
        return b"".join(parts)
    swapped = encoded.translate(_SWAPPED)
    swapped = swapped.replace(b"=3D", b"%").replace(b"=3d", b"%").replace(b"=25", b"=3D")
    # Twice: in a run of signs the first pass leaves pairs.
    swapped = swapped.replace(b"==", b"=3D=").replace(b"==", b"=3D=")
    swapped = swapped.replace(b"=\n", b"=3D\n").replace(b"=\r", b"=3D\r")
    if swapped.endswith(b"="):
        swapped += b"3D"
    return a2b_qp(swapped).translate(_SWAPPED)


_flat_names: dict[Structure, frozenset[str]] = {}


@dataclass(slots=True)
class _Node:
    """One dotted prefix: the value of the parameter of that name, and what continues it."""

    text: str | None = None
    children: dict[str, "_Node"] = field(default_factory=dict)

    def entries(self) -> list["_Node"]:
        """Children with a numeric name in the order of the numbers; gaps do not matter."""
        numbered = [
            (int(name), child)
            for name, child in self.children.items()
            if len(name) <= 9 and name.isascii() and name.isdigit()
        ]
        numbered.sort(key=lambda pair: pair[0])
        return [child for _, child in numbered]


def decode(structure: Structure, params: dict[str, str]) -> dict[str, Any]:
    """The members that the parameters name, typed as `structure` says; other parameters are
    ignored.

    The bare name of a list or a map is an empty one. Old forms without an index
    (`Attribute.Name`, `AttributeName`) are one entry. Numbers, booleans, blobs and timestamps
    that cannot be read, and map entries without a key, raise Malformed.
    """
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
    """The members of a request that has nothing but scalars; None: there is more to it."""
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
    """The value, or None when the parameters do not hold one."""
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
    if numbered is None:
        return None if node.text is None else {}
    entries = numbered.entries()
    if shape.key_name in numbered.children:
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
    """What an entry without a value means: an empty text, or a structure whose members are all
    missing.
    """
    if isinstance(shape, Scalar):
        return _read_scalar(shape, "")
    return [] if isinstance(shape, List) else {}
