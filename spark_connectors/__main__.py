"""`python -m spark_connectors`: lists options for the guide, and handles spools without a query."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from spark_connectors.errors import ConnectorError
from spark_connectors.formats import COMMON, TABLES, options_of
from spark_connectors.options import table


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m spark_connectors", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    options = commands.add_parser("options", help="list the options of a source or sink")
    options.add_argument("of", choices=sorted([COMMON, *TABLES]), help="which")
    about = "list a spool whose checkpoint is lost, or give its messages back to the queue"
    spool = commands.add_parser("spool", help=about)
    spool.add_argument("what", choices=("list", "return"))
    spool.add_argument("options", nargs="+", metavar="OPTION=VALUE", help="as the stream has them")
    asked = parser.parse_args(arguments)
    if asked.command == "options":
        print("\n".join(table(options_of(asked.of))))
        return 0
    wrong = [one for one in asked.options if "=" not in one]
    if wrong:
        parser.error(f"'{wrong[0]}' is not OPTION=VALUE")
    try:
        _see_to_spool(asked.what, dict(one.split("=", 1) for one in asked.options))
    except ConnectorError as failed:
        print(f"spool {asked.what}: {failed}", file=sys.stderr)
        return 1
    return 0


def _see_to_spool(what: str, given: dict[str, str]) -> None:
    # Only these commands need PySpark.
    from spark_connectors.source.spool_return import list_spool, return_spool

    for line in (list_spool if what == "list" else return_spool)(given):
        print(line)


if __name__ == "__main__":
    sys.exit(main())
