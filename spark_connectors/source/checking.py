"""Look at the options of a source before Spark plans anything: what is wrong is said at once."""

from __future__ import annotations

from collections.abc import Mapping

from spark_connectors.options.declaring import BadOption, unknown_names
from spark_connectors.source.batch_options import batch_options
from spark_connectors.source.options import STREAM_OPTIONS, stream_options


def check_stream(given: Mapping[str, str]) -> None:
    """What can be known of a stream before it starts. Raises BadOption, and as QueuePlace.check."""
    options = stream_options(given)
    options.place.check(options.connection)


def check_options(given: Mapping[str, str]) -> None:
    """What can be known where nobody says yet whether it will be a stream or a batch: options must
    do for one of them. Raises BadOption. The queue is not asked: a plan is often made in vain."""
    try:
        stream_options(given)
    except BadOption as of_stream:
        try:
            batch_options(given)
        except BadOption as of_batch:
            # Which of the two was meant is the one that knows the names.
            raise (of_batch if unknown_names(STREAM_OPTIONS, given) else of_stream) from None
