"""Actions of a command, such as `queuegate keys create`: light, for every start reads them."""

from __future__ import annotations

import argparse
from collections.abc import Callable

AddDatabase = Callable[[argparse.ArgumentParser], None]
AddAction = Callable[[str, str, str], argparse.ArgumentParser]


def actions_of(command: argparse.ArgumentParser, add_database: AddDatabase) -> AddAction:
    """What adds an action: by its name, what it does in a line, and in full."""
    actions = command.add_subparsers(metavar="action", dest="action", required=True)

    def add(name: str, summary: str, text: str) -> argparse.ArgumentParser:
        action = actions.add_parser(
            name,
            help=summary,
            description=text,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        add_database(action)
        return action

    return add


def whole_number(text: str) -> int:
    """The type of an argument that counts or names something in the database."""
    number = int(text) if text.isascii() and text.isdigit() else 0
    if not 0 < number < 1 << 63:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1")
    return number
