"""`python -m spark_connectors options`: every option, as the guide lists them."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence

from spark_connectors.options.declaring import Option, table


def _stream() -> Sequence[Option]:
    from spark_connectors.source.options import STREAM_OPTIONS

    return STREAM_OPTIONS


def _batch() -> Sequence[Option]:
    from spark_connectors.source.batch_options import BATCH_OPTIONS

    return BATCH_OPTIONS


def _queue_sink() -> Sequence[Option]:
    from spark_connectors.sink.options import SINK_OPTIONS

    return SINK_OPTIONS


def _topic_sink() -> Sequence[Option]:
    from spark_connectors.sink.options import TOPIC_SINK_OPTIONS

    return TOPIC_SINK_OPTIONS


OF: dict[str, Callable[[], Sequence[Option]]] = {
    "stream": _stream,
    "batch": _batch,
    "sqs-sink": _queue_sink,
    "sns-sink": _topic_sink,
}


def main() -> None:
    """Print the table that was asked for."""
    parser = argparse.ArgumentParser(prog="python -m spark_connectors", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    options = commands.add_parser("options", help="list the options of a source or sink")
    options.add_argument("of", choices=sorted(OF), help="which")
    print("\n".join(table(OF[parser.parse_args().of]())))


if __name__ == "__main__":
    main()
