"""The AWS SDK for Rust. Its types cannot be asked for their members: the part of the driver that
names them is written from the models of botocore, as far as the SDK has them."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import botocore.session  # type: ignore[import-untyped]
from botocore import xform_name
from botocore.model import (  # type: ignore[import-untyped]
    ListShape,
    MapShape,
    OperationModel,
    ServiceModel,
    Shape,
    StructureShape,
)

from conformance.environments import (
    DRIVERS,
    ENVIRONMENTS,
    NotInstalled,
    Participant,
    build,
    program,
)
from queuegate.protocol.service_detection import SERVICES

_SOURCE = DRIVERS / "rust"
_FOLDER = ENVIRONMENTS / "conformance-rust"
# On two busy cores.
_COMPILE_SECONDS = 3600
_KEYWORDS = frozenset({"type"})
_PUBLIC = re.compile(r"pub (?:fn|struct|enum) (\w+)")
_HEAD = """\
// Written by conformance/clients/sdk_rust.py.
#![allow(deprecated, unused_variables)]
use crate::{Built, Clients, Lined, Members, none_left, refused, taken, written};
use serde_json::{Value, json};
"""
_STRUCTURE = """
impl Lined for {type} {{
    fn read(value: Value) -> Result<Self, String> {{
        let mut members = crate::members(value)?;
        let made = <{type}>::builder(){setters};
        none_left(members)?;
        Built::built(made.build())
    }}

    fn write(&self) -> Option<Value> {{
        Some(written([{getters}]))
    }}
}}
"""
_TEXT = """
impl Lined for {type} {{
    fn read(value: Value) -> Result<Self, String> {{
        String::read(value).map(|text| text.as_str().into())
    }}

    fn write(&self) -> Option<Value> {{
        Some(json!(self.as_str()))
    }}
}}
"""
_CALL = """\
        ("{service}", "{action}") => Box::pin(async move {{
            let call = clients.{service}.{method}(){setters};
            none_left(members)?;
            match call.send().await {{
                Ok(result) => Ok(json!({{"result": written([{getters}])}})),
                Err(error) => refused(error),
            }}
        }}).await,
"""


def _field(name: str) -> str:
    plain = xform_name(name)
    return f"r#{plain}" if plain in _KEYWORDS else plain


def _type(shape: Shape) -> str:
    return "".join(word.capitalize() for word in xform_name(shape.name).split("_"))


class _Crate:
    """One service of the SDK, which is older or newer than botocore."""

    def __init__(self, name: str, source: Path) -> None:
        self._path = f"aws_sdk_{name}::types"
        files = [*source.glob("types/**/*.rs"), *source.glob("operation/**/*.rs")]
        self._names = {found for file in files for found in _PUBLIC.findall(file.read_text())}

    def members(self, shape: StructureShape | None) -> list[str]:
        """Return the members of a shape that the SDK has."""
        names = shape.members if shape else ()
        return [name for name in names if f"set_{xform_name(name)}" in self._names]

    def setters(self, shape: StructureShape | None) -> str:
        return "".join(
            f'.set_{xform_name(name)}(taken(&mut members, "{name}")?)'
            for name in self.members(shape)
        )

    def getters(self, shape: StructureShape | None, of: str) -> str:
        return ", ".join(f'("{name}", {of}.{_field(name)}.write())' for name in self.members(shape))

    def implementation(self, shape: Shape) -> str:
        """Return how a shape is read and written; nothing for a plain text, or an absent one."""
        name = f"{self._path}::{_type(shape)}"
        if _type(shape) not in self._names:
            return ""
        if shape.type_name == "structure":
            setters, getters = self.setters(shape), self.getters(shape, "self")
            return _STRUCTURE.format(type=name, setters=setters, getters=getters)
        return _TEXT.format(type=name) if getattr(shape, "enum", None) else ""


def _within(shape: Shape | None) -> Iterator[Shape]:
    """Yield the shapes of which a shape consists."""
    parts: list[Shape] = []
    if isinstance(shape, StructureShape):
        parts = [*shape.members.values()]
    elif isinstance(shape, ListShape):
        parts = [shape.member]
    elif isinstance(shape, MapShape):
        parts = [shape.key, shape.value]
    for part in parts:
        yield part
        yield from _within(part)


def _service(name: str, model: ServiceModel, crate: _Crate) -> tuple[str, str]:
    """Implementations for the shapes of a service, and arms for its actions."""
    operations: list[OperationModel] = [
        model.operation_model(action) for action in SERVICES[name].actions
    ]
    shapes = {
        part.name: part
        for operation in operations
        for shape in (operation.input_shape, operation.output_shape)
        for part in _within(shape)
    }
    arms = [
        _CALL.format(
            service=name,
            action=operation.name,
            method=xform_name(operation.name),
            setters=crate.setters(operation.input_shape),
            getters=crate.getters(operation.output_shape, "result"),
        )
        for operation in operations
    ]
    return "".join(map(crate.implementation, shapes.values())), "".join(arms)


def _crates(cargo: str) -> dict[str, _Crate]:
    """Return what the locked packages of the SDK have; NotInstalled."""
    command = [cargo, "metadata", "--locked", "--format-version=1"]
    done = subprocess.run(command, cwd=_FOLDER, capture_output=True, text=True, check=False)
    if done.returncode:
        raise NotInstalled(f"its packages could not be had: {done.stderr.strip()}")
    sources = {
        one["name"].removeprefix("aws-sdk-"): Path(one["manifest_path"]).parent / "src"
        for one in json.loads(done.stdout)["packages"]
    }
    return {name: _Crate(name, sources[name]) for name in SERVICES}


def _calls(crates: dict[str, _Crate]) -> str:
    """Return the module ``calls`` of the driver."""
    session = botocore.session.get_session()
    services = [_service(name, session.get_service_model(name), crates[name]) for name in SERVICES]
    arms = "".join(arm for _, arm in services)
    return (
        _HEAD
        + "".join(shapes for shapes, _ in services)
        + "\npub async fn call(clients: &Clients, service: &str, action: &str, "
        + "mut members: Members) -> Result<Value, String> {\n    match (service, action) {\n"
        + arms
        + '        _ => Err(format!("there is no {action}")),\n    }\n}\n'
    )


def _command() -> list[str]:
    cargo = program("cargo")
    compile_it = [cargo, "build", "--quiet", "--locked"]
    shutil.copytree(_SOURCE, _FOLDER, dirs_exist_ok=True)
    written, text = _FOLDER / "src" / "calls.rs", _calls(_crates(cargo))
    if not written.exists() or written.read_text("utf-8") != text:
        written.write_text(text, "utf-8")
    sources = [written, *(path for path in _SOURCE.rglob("*") if path.is_file())]
    build(_FOLDER, sources, [compile_it], _FOLDER, seconds=_COMPILE_SECONDS)
    return [str(_FOLDER / "target" / "debug" / "driver")]


PARTICIPANT = Participant(name="rust", command=_command, brief=True)
