"""Settings for operators: the table, effective values, and warnings about unknown variables."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import MISSING, Field, fields
from typing import Any

from queuegate.gateway.configuration.settings import (
    ADDRESS,
    DATABASE_PARTS,
    VARIABLES,
    Settings,
)
from queuegate.gateway.configuration.values import Variable

# Variables with these prefixes are meant for Queuegate: an unknown one is probably misspelt.
OURS = ("QUEUEGATE_", "QUEUE_SCHEDULE_", "OTLP_")
# Variables of make and the tests.
NOT_OURS = ("QUEUEGATE_TEST_", "QUEUEGATE_BENCH_")


def table() -> list[tuple[Variable, str]]:
    """Return every variable of the configuration table with its default."""
    rows = [(ADDRESS, "")]
    for item in fields(Settings):
        variable = VARIABLES[item.name]
        if not variable.internal:
            rows.append((variable, _shown_default(item)))
        if item.name == "database_url":
            rows += DATABASE_PARTS
    return rows


def markdown_table() -> str:
    """Return the tables of docs/reference/settings.md, one for each title."""
    lines: list[str] = []
    for variable, default in table():
        if variable.title:
            lines += [
                *([""] if lines else []),
                f"### {variable.title}",
                "",
                "| Variable | Default | Allowed | What it does |",
                "| --- | --- | --- | --- |",
            ]
        names = ", ".join(f"`{name}`" for name in variable.names)
        shown = f"`{default}`" if default else ""
        lines.append(f"| {names} | {shown} | {variable.kind.allowed} | {variable.explanation} |")
    return "\n".join(lines)


def effective(settings: Settings) -> list[tuple[str, str]]:
    """Return (variable, value) of every setting, with secrets hidden."""
    lines = []
    for item in fields(settings):
        variable, value = VARIABLES[item.name], getattr(settings, item.name)
        if variable.internal:
            continue
        text = "" if value is None else variable.kind.write(value)
        lines.append((variable.names[0], "(hidden)" if variable.secret and text else text))
    return lines


def warnings_about(environ: Mapping[str, str]) -> list[str]:
    """Return a line for each unknown variable with a prefix of ours."""
    known = [name for variable, _ in table() for name in variable.names] + ["QUEUEGATE_RUNTIME_DIR"]
    lines = []
    for name in sorted(environ):
        if name.startswith(OURS) and name not in known and not name.startswith(NOT_OURS):
            near = difflib.get_close_matches(name, known, n=1)
            hint = (
                f"; did you mean {near[0]}?" if near else "; `queuegate config` lists all of them"
            )
            lines.append(f"{name} is not a setting of Queuegate: ignored{hint}")
    return lines


def _shown_default(item: Field[Any]) -> str:
    if item.name == "data_dir":
        return "~/.local/state/queuegate (as root: /var/lib/queuegate)"
    if item.default is MISSING or item.default is None:
        return ""
    return VARIABLES[item.name].kind.write(item.default)
