"""`python -m spark_connectors options`: every option, as the guide lists them."""

from __future__ import annotations

import argparse

from spark_connectors.formats import COMMON, TABLES, options_of
from spark_connectors.options.declaring import table


def main() -> None:
    """Print the table that was asked for."""
    parser = argparse.ArgumentParser(prog="python -m spark_connectors", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    options = commands.add_parser("options", help="list the options of a source or sink")
    options.add_argument("of", choices=sorted([COMMON, *TABLES]), help="which")
    print("\n".join(table(options_of(parser.parse_args().of))))


if __name__ == "__main__":
    main()
