"""Actions of commands on a running gateway: arguments, confirmation, output and exit codes."""

from __future__ import annotations

import argparse
import inspect
import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar
from urllib.parse import quote, urlencode

from queuegate.gateway.command.command_line import (
    AddArguments,
    CommandRefused,
    ProgressLine,
    actions_of,
    add_gateway,
    add_options,
    print_lines,
    print_table,
)
from queuegate.gateway.command.gateway_client import GatewayClient

_POSITION_COLUMNS = ("partition", "offset", "watermark", "end")

YES = "--yes  do not ask for confirmation"
Parsers = Mapping[str, Callable[[str], object]]
Perform = TypeVar("Perform", bound=Callable[[Any], object])


class _Action(NamedTuple):
    perform: Callable[[Any], object]
    summary: str
    options: str
    one_of: str


class Actions:
    """The actions of a command, in the order of their registration.

    ``subject``: the argument of all actions but `list`. ``groups``: summary and description of
    names that start several actions.
    """

    def __init__(self, subject: str, groups: Mapping[str, tuple[str, str]] | None = None) -> None:
        self._subject = subject
        self._groups = groups or {}
        self._actions: dict[str, _Action] = {}

    def __call__(
        self, name: str, summary: str, options: str = "", one_of: str = ""
    ) -> Callable[[Perform], Perform]:
        """Register an action, whose docstring describes it, with the lines of its options. One of
        ``one_of`` has to be given."""

        def register(perform: Perform) -> Perform:
            self._actions[name] = _Action(perform, summary, options, one_of)
            return perform

        return register

    def add_to(
        self,
        command: argparse.ArgumentParser,
        *shared: AddArguments,
        parsers: Parsers,
        choices: Parsers | None = None,
    ) -> None:
        """Add the actions to a command. ``parsers`` and ``choices``: types of options, and of those
        of ``one_of``."""
        adds = {"": actions_of(command)}
        for name, (perform, summary, options, one_of) in self._actions.items():
            group, _, last = name.rpartition(" ")
            if group not in adds:
                adds[group] = actions_of(adds[""](group, *self._groups[group]))
            action = adds[group](last, summary, inspect.getdoc(perform) or "")
            action.set_defaults(perform=perform)
            for add_arguments in (add_gateway, *shared):
                add_arguments(action)
            if name != "list":
                add_options(action, self._subject)
            add_options(action, options, **parsers)
            if one_of:
                which = action.add_mutually_exclusive_group(required=True)
                add_options(which, one_of, **(choices or parsers))


class NotConfirmed(Exception):
    """The user did not confirm a deletion."""


class ActionClient:
    """A client of paths below a prefix, with the options and the output of one action."""

    prefix = "/v1"

    def __init__(self, gateway: GatewayClient, options: argparse.Namespace) -> None:
        self.gateway = gateway
        self.options = options
        self.progress = ProgressLine()

    def run(self) -> int:
        """Run the action; return its exit code, 1 if the user did not confirm it, or 130 after
        Ctrl-C."""
        try:
            code: int = self.options.perform(self) or 0
        except KeyboardInterrupt:
            return 130
        except BrokenPipeError:
            # The reader of the output, such as `head`, has closed the pipe.
            sys.stdout = None
            return 0
        except NotConfirmed:
            print("Nothing was changed.")
            return 1
        finally:
            self.progress.end()
        return code

    def call_all(self, method: str, *parts: object, body: object = None, **query: object) -> Any:
        """Request a path below the prefix; return the JSON of the response, {} without any. Raises
        CommandRefused for an empty name."""
        if "" in parts:
            raise CommandRefused("the name is empty")
        path = "".join(f"/{quote(str(part), '', errors='replace')}" for part in parts)
        given = {name: value for name, value in query.items() if value is not None}
        question = f"?{urlencode(given)}" if given else ""
        return self.gateway.call(method, f"{self.prefix}{path}{question}", body) or {}

    def agree(self, question: str) -> None:
        """Ask for confirmation of a deletion. Raises NotConfirmed."""
        if self.options.yes:
            return
        try:
            answer = input(f"{question} (yes/no) ")
        except EOFError:
            print()
            answer = ""
        if answer.strip().lower() not in {"y", "yes"}:
            raise NotConfirmed

    def print_json(self, found: Sequence[Mapping[str, Any]] | Mapping[str, Any]) -> None:
        """Print one JSON object a line."""
        print_lines([found] if isinstance(found, Mapping) else found)

    def show(self, objects: Iterable[dict[str, Any]], columns: Iterable[str], none: str) -> None:
        """Print a table with these columns, or all members as JSON."""
        found = list(objects)
        if self.options.json:
            self.print_json(found)
        elif not found:
            print(none)
        else:
            heads = list(columns)
            titles = [head.replace("_", " ").upper() for head in heads]
            print_table(titles, [[cell(head, one.get(head)) for head in heads] for one in found])

    def done(self, text: str, **facts: object) -> None:
        """Print the result."""
        if self.options.json:
            self.print_json(facts)
        else:
            print(text)


def cell(head: str, value: object) -> str:
    """Format a value for a table."""
    if value is None:
        return "-"
    if isinstance(value, dict):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:,.1f}"
    # Positions are input of other commands, so they have no thousands separators.
    is_amount = isinstance(value, int) and head not in _POSITION_COLUMNS
    return f"{value:,}" if is_amount else str(value)
