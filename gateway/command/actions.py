"""Actions of a command, such as `queuegate keys create`: light, for every start reads them."""

from __future__ import annotations

import argparse
import difflib
import re
from collections.abc import Callable
from typing import Any, NoReturn


class Parser(argparse.ArgumentParser):
    """A parser that guesses which command, action or flag a misspelt one is."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Refuse unknown flags here, with the usage of the command that they were given to."""
        found, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error("unrecognized arguments: " + " ".join(unknown))
        return found, unknown

    def error(self, message: str) -> NoReturn:
        """Leave with 2, the usage and the guess."""
        match = re.search(r"(?:invalid choice: '|unrecognized arguments: )([^' =]+)", message)
        if match is not None:
            known = re.findall(r"(?<![\w-])--[a-z][a-z-]+", self.format_help())
            known += re.findall(r"[a-z][a-z-]+", message.partition("choose from")[2])
            near = difflib.get_close_matches(match[1], known, n=1)
            message += f". Did you mean {near[0]}?" if near else ""
        super().error(message)


_SIGNING = "default: the access key in AWS_ACCESS_KEY_ID, if it is one of these, signs"

AddPlace = Callable[[argparse.ArgumentParser], None]
AddAction = Callable[[str, str, str], argparse.ArgumentParser]


def actions_of(command: argparse.ArgumentParser, add_place: AddPlace) -> AddAction:
    """What adds an action: by its name, what it does in a line, and in full. ``add_place`` adds to
    each where it is done: in a database, or by a gateway."""
    actions = command.add_subparsers(metavar="action", dest="action", required=True)

    def add(name: str, summary: str, text: str) -> argparse.ArgumentParser:
        action = actions.add_parser(
            name,
            help=summary,
            description=text,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        add_place(action)
        return action

    return add


def add_gateway(command: argparse.ArgumentParser) -> None:
    """Add where the gateway is that is asked, and who asks."""
    where = command.add_argument_group("gateway")
    where.add_argument("--url", help="where it is (default: the configured port of this machine)")
    who = where.add_mutually_exclusive_group()
    who.add_argument("--key", help=f"of `queuegate keys`: it names the account ({_SIGNING})")
    who.add_argument("--account", metavar="ID", help="without a key (default: the gateway's)")
    where.add_argument("--region", metavar="R", help="without a key (default: the gateway's)")


def add_url(action: argparse.ArgumentParser) -> None:
    """Add the gateway that is asked in place of a database."""
    action.add_argument(
        "--url", help="ask this running gateway, such as one with --ephemeral, not a database"
    )
    action.add_argument("--key", help=f"with --url: of `queuegate keys` ({_SIGNING})")
    action.set_defaults(account=None, region=None)


def whole_number(text: str) -> int:
    """The type of an argument that counts or names something in the database."""
    number = int(text) if text.isascii() and text.isdigit() else 0
    if not 0 < number < 1 << 63:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1")
    return number


def assignment(text: str) -> tuple[str, str]:
    """The type of an argument that gives something a value."""
    name, equals, value = text.partition("=")
    if not (name and equals and value):
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    return name, value


def age(text: str) -> float:
    """The type of an argument that is a time, such as 15m: seconds."""
    match = re.fullmatch(r"(\d{1,9})([smhd]?)", text)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no time such as 90s, 15m, 6h or 2d")
    return float(match[1]) * {"": 1, "s": 1, "m": 60, "h": 3_600, "d": 86_400}[match[2]]
