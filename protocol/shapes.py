"""What a request or a response looks like, as data: the walkers of both wires read these and
nothing else.

A shape is compared by identity, so it is a cheap dictionary key. Names that only the Query
protocol needs (`flat`, `key_name`, `value_name`) stand on the shape that they rename; the JSON
wire ignores them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

ScalarKind = Literal["string", "integer", "long", "boolean", "blob", "timestamp"]


@dataclass(frozen=True, slots=True, eq=False)
class Scalar:
    """In Python: str, int (32 and 64 bit), bool, bytes, and datetime with a time zone."""

    kind: ScalarKind


@dataclass(frozen=True, slots=True, eq=False)
class List:
    """`flat` is the Query name of each element of a flattened list; without it elements are
    `<Member>.member.N`.

    An empty flattened list leaves no trace in a response of either wire; other empty lists are
    written.
    """

    item: "Shape"
    flat: str | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Map:
    """String keys. `flat` names the entries of a flattened map; without it they are
    `<Member>.entry.N`.
    """

    value: "Shape"
    flat: str | None = None
    key_name: str = "key"
    value_name: str = "value"


@dataclass(frozen=True, slots=True, eq=False)
class Structure:
    """Members in the order in which XML writes them."""

    members: Mapping[str, "Shape"]


Shape: TypeAlias = Scalar | List | Map | Structure

STRING = Scalar("string")
INTEGER = Scalar("integer")
LONG = Scalar("long")
BOOLEAN = Scalar("boolean")
BLOB = Scalar("blob")
TIMESTAMP = Scalar("timestamp")


@dataclass(frozen=True, slots=True, eq=False)
class Action:
    """`output` None: nothing is returned, not even an empty Result element. `Structure({})`: an
    empty one.
    """

    name: str
    input: Structure
    output: Structure | None


@dataclass(frozen=True, slots=True, eq=False)
class Service:
    """One AWS service. `name` is its SigV4 signing name; `versions` are the API versions it
    answers to.

    `target_prefix` and `json_version` are None for a service without a JSON-RPC wire.
    """

    name: str
    versions: tuple[str, ...]
    target_prefix: str | None
    json_version: str | None
    xml_namespace: str
    xml_prolog: str
    xml_error_detail: bool
    actions: Mapping[str, Action]
