"""Settings as operators read them: the table, what is in effect, and what does nothing."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import MISSING, Field, dataclass, fields
from typing import Any

from gateway.configuration.settings import ADDRESS_NAMES, Settings, variable_of


@dataclass(frozen=True)
class Row:
    """One line of the configuration table."""

    variables: tuple[str, ...]
    default: str
    allowed: str
    explanation: str


# What begins so is meant for us: ignoring it in silence would let somebody believe that it is on.
OURS = ("QUEUEGATE_", "QUEUE_SCHEDULE_", "OTLP_")
# Read by pip, make or the tests, not by the gateway.
NOT_OURS = ("QUEUEGATE_TEST_", "QUEUEGATE_BENCH_")


def table() -> list[Row]:
    """The configuration table: every variable, with its default and its allowed values."""
    address = Row(
        ADDRESS_NAMES,
        "",
        "host:port",
        "Hosts and port in one. The two variables for hosts and port take precedence.",
    )
    rows = [address]
    for item in fields(Settings):
        variable = variable_of(item)
        if not variable.internal:
            row = Row(variable.names, _shown_default(item), variable.allowed, variable.explanation)
            rows.append(row)
    return rows


_GROUPS = {
    ADDRESS_NAMES[0]: "Where it listens",
    "DATABASE_URL": "Data and processes",
    "QUEUEGATE_REGION": "Accounts",
    "QUEUEGATE_DEFAULT_VISIBILITY_TIMEOUT": "Queues and the database",
    "QUEUEGATE_LOG_LEVEL": "Logs",
    "QUEUEGATE_ADMIN_CLOCK": "The clock",
    "QUEUEGATE_MAX_BODY_BYTES": "Bounds",
    "QUEUEGATE_PURGE_INTERVAL": "Cool-downs of SQS",
    "QUEUEGATE_PRIVATE_WEBHOOKS": "Web hooks",
    "QUEUEGATE_SIGNING_KEY_FILE": "Signatures of SNS",
    "QUEUEGATE_OUTBOX_DAYS": "The outbox",
    "QUEUE_SCHEDULE_ENABLED": "Schedules",
    "QUEUEGATE_OTLP_ENABLED": "Traces",
}
"""The first variable of each purpose, in the order of the table."""


def markdown_table() -> str:
    """The configuration table as it stands in docs/configuration.md, a part for each purpose."""
    lines: list[str] = []
    for row in table():
        title = _GROUPS.get(row.variables[0])
        if title is not None:
            lines += ["", f"### {title}", ""] if lines else [f"### {title}", ""]
            lines += [
                "| Variable | Default | Allowed | What it does |",
                "| --- | --- | --- | --- |",
            ]
        names = ", ".join(f"`{name}`" for name in row.variables)
        default = f"`{row.default}`" if row.default else ""
        lines.append(f"| {names} | {default} | {row.allowed} | {row.explanation} |")
    return "\n".join(lines)


def effective(settings: Settings) -> list[tuple[str, str]]:
    """(variable, value) of every setting, with secrets hidden."""
    lines = []
    for item in fields(settings):
        variable, value = variable_of(item), getattr(settings, item.name)
        if variable.internal:
            continue
        text = "" if value is None else variable.write(value)
        lines.append((variable.names[0], "(hidden)" if variable.secret and text else text))
    return lines


def warnings_about(environ: Mapping[str, str]) -> list[str]:
    """A line for each variable that looks meant for us but does nothing."""
    known = [name for row in table() for name in row.variables] + ["QUEUEGATE_RUNTIME_DIR"]
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
    return variable_of(item).write(item.default)
