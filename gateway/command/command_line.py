"""Arguments and terminal output that commands share. Every start imports this module, so it imports
little.
"""

from __future__ import annotations

import argparse
import difflib
import re
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NoReturn

from queuegate.gateway.configuration.settings import default_data_dir, process_environment

_MAX_CELL_WIDTH = 60
PROGRESS_SECONDS = 1.0
"""Time between two updates of a progress line."""


class CommandParser(argparse.ArgumentParser):
    """A parser that suggests the nearest command, action or option for a misspelt one."""

    load: Callable[[CommandParser], None] | None = None
    """Adds the arguments when the parser is first used, and imports what the command needs."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Refuse unknown options with the usage of the command that they are given to."""
        if self.load is not None:
            load, self.load = self.load, None
            load(self)
        found, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error("unrecognized arguments: " + " ".join(unknown))
        return found, unknown

    def error(self, message: str) -> NoReturn:
        """Exit with 2 after the usage, the message and a suggestion."""
        match = re.search(r"(?:invalid choice: '|unrecognized arguments: )([^' =]+)", message)
        if match is not None:
            known = re.findall(r"(?<![\w-])--[a-z][a-z-]+", self.format_help())
            known += re.findall(r"[a-z][a-z-]+", message.partition("choose from")[2])
            near = difflib.get_close_matches(match[1], known, n=1)
            message += f". Did you mean {near[0]}?" if near else ""
        super().error(message)


_SIGNING = "default: sign with the access key in AWS_ACCESS_KEY_ID, if it is one of these"

AddArguments = Callable[[argparse.ArgumentParser], None]
AddAction = Callable[[str, str, str], argparse.ArgumentParser]


def actions_of(command: argparse.ArgumentParser, *shared: AddArguments) -> AddAction:
    """Return a function that adds an action by name, summary and description.

    ``shared`` adds the arguments that all actions have, such as where the database is.
    """
    actions = command.add_subparsers(metavar="action", dest="action", required=True)

    def add(name: str, summary: str, description: str) -> argparse.ArgumentParser:
        action = actions.add_parser(
            name,
            help=summary,
            description=description,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        for add_arguments in shared:
            add_arguments(action)
        return action

    return add


_ARGUMENT = re.compile(r"(\S+)(?: (\[?[A-Z]\S*))?( \.\.\.)?  +(\S.*)")


def add_options(
    command: argparse._ActionsContainer, text: str, **types: Callable[[str], object]
) -> None:
    """Add the arguments of a text as a help shows them, one a line, with types by their names.

    ``--flag``, ``--option METAVAR``, ``argument METAVAR``; ``...`` takes several, ``[argument]`` is
    optional, ``--option [METAVAR]`` without its value is True. A line that is indented continues
    the help of the line before.
    """
    for line in re.sub(r"\n +", " ", text).splitlines():
        found = _ARGUMENT.fullmatch(line)
        assert found is not None, line
        name, metavar, several, shown = found.groups()
        dest = name.strip("-[]").replace("-", "_")
        more: dict[str, Any] = {"action": "store_true"}
        if metavar is not None:
            more = {"metavar": metavar.strip("[]"), "type": types.get(dest)}
            if metavar.startswith("["):
                more |= {"nargs": "?", "const": True}
            if name.startswith("["):
                more |= {"nargs": "*", "default": []} if several else {"nargs": "?"}
            elif several:
                is_option = name.startswith("-")
                more |= {"action": "append", "default": []} if is_option else {"nargs": "+"}
        command.add_argument(name.strip("[]"), help=shown, **more)


def add_gateway(command: argparse.ArgumentParser) -> None:
    """Add the address of the gateway and the credentials of the caller."""
    where = command.add_argument_group("gateway")
    add_options(where, "--url URL  address of the gateway (default: the configured port here)")
    who = where.add_mutually_exclusive_group()
    add_options(
        who,
        f"""\
--key KEY     key of `queuegate keys`, names the account ({_SIGNING})
--account ID  account, without a key (default: the gateway's)
""",
    )
    add_options(where, "--region R  region, without a key (default: the gateway's)")


def add_json(action: argparse.ArgumentParser) -> None:
    """Add --json of a list."""
    add_options(action, "--json  print one JSON object a line")


def add_limit(action: argparse.ArgumentParser) -> None:
    """Add --limit of a list."""
    add_options(action, "--limit N  maximum number (default: 50)", limit=whole_number)
    action.set_defaults(limit=50)


def add_url(action: argparse.ArgumentParser) -> None:
    """Add the address of a gateway that replaces the database."""
    action.add_argument(
        "--url", help="use this running gateway, such as an ephemeral one, instead of a database"
    )
    action.add_argument("--key", help=f"with --url: key of `queuegate keys` ({_SIGNING})")
    action.set_defaults(account=None, region=None)


def whole_number(text: str) -> int:
    """Parse a positive number that fits a bigint column."""
    number = int(text) if text.isascii() and text.isdigit() else 0
    if not 0 < number < 1 << 63:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1")
    return number


def assignment(text: str) -> tuple[str, str]:
    """Parse NAME=VALUE."""
    name, equals, value = text.partition("=")
    if not (name and equals and value):
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    return name, value


def age(text: str) -> float:
    """Parse a duration such as 15m; return seconds."""
    match = re.fullmatch(r"(\d{1,9})([smhd]?)", text)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a duration such as 90s, 15m, 6h or 2d")
    return float(match[1]) * {"": 1, "s": 1, "m": 60, "h": 3_600, "d": 86_400}[match[2]]


def add_database(command: argparse.ArgumentParser) -> None:
    """Add the data directory and the URL of the database."""
    default = str(default_data_dir(process_environment())).replace("%", "%%")
    command.add_argument(
        "--data",
        metavar="DIR",
        dest="data_dir",
        help=f"directory of the bundled PostgreSQL (default: {default})",
    )
    command.add_argument(
        "--database-url",
        metavar="URL",
        help="your own PostgreSQL 15+; DATABASE_URL keeps the password out of `ps`",
    )


class CommandRefused(Exception):
    """A command cannot do its work; the text says why and names a remedy."""


def fail(text: str) -> int:
    """Print an error on stderr; return 1, the exit code."""
    print(f"queuegate: {text}", file=sys.stderr)
    return 1


def print_lines(objects: Iterable[Mapping[str, Any]]) -> None:
    """Print one JSON object a line."""
    import json

    for facts in objects:
        print(json.dumps(facts, default=str, ensure_ascii=False))


def print_table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table. A column is as wide as its longest cell, up to 60 characters."""
    cells = [[_shortened(plain(cell)) for cell in row] for row in rows]
    widths = [max(len(line[place]) for line in [heads, *cells]) for place in range(len(heads))]
    for line in [heads, *cells]:
        padded = [cell.ljust(width) for cell, width in zip(line, widths, strict=True)]
        print("  ".join(padded).rstrip())


def _shortened(text: str) -> str:
    return text if len(text) <= _MAX_CELL_WIDTH else text[: _MAX_CELL_WIDTH - 3] + "..."


def plain(text: str) -> str:
    """Replace control characters, which a terminal would obey, by question marks."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def print_facts(facts: Mapping[str, str]) -> None:
    """Print names and values, aligned, one pair a line."""
    width = max(map(len, facts))
    for name, text in facts.items():
        print(f"{name:{width}}  {plain(text)}")


def counted(count: int, what: str) -> str:
    """Return a count with its noun, such as "2 records"."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def span(seconds: float) -> str:
    """Return a duration in one unit, such as 90s or 2h."""
    whole = max(0, int(seconds))
    for unit, size in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if whole >= 2 * size:
            return f"{whole // size}{unit}"
    return f"{whole}s"


def escaped(text: str) -> str:
    """Replace control characters, which a terminal would obey, by escapes such as \\x1b."""
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode()
        for letter in text
    )


class ProgressLine:
    """A running count on a terminal, rewritten at most once a second."""

    def __init__(self) -> None:
        self._printed_at = time.monotonic()
        self._is_open = False
        self._count = 0

    def __enter__(self) -> ProgressLine:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def add(self, count: int) -> None:
        """Show so many rows more."""
        self._count += count
        self.show(self._count, "rows")

    def show(self, count: int, what: str) -> None:
        """Print the count, unless stderr is a file or the last count is recent."""
        if sys.stderr.isatty() and time.monotonic() - self._printed_at >= PROGRESS_SECONDS:
            self._printed_at = time.monotonic()
            self._is_open = True
            print(f"\r{count:,} {what}", end="", file=sys.stderr, flush=True)

    def end(self) -> None:
        """End the line, if one was printed."""
        if self._is_open:
            print(file=sys.stderr)
            self._is_open = False
