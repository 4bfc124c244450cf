"""When a schedule fires: what people write, and the instants that follow from it.

Pure: no clock, no database, no network; whoever needs "now" passes it.

A cron expression is read in its zone. A local time that a clock change skips runs at the first
instant after the change. A local time that comes twice runs the first time only. An hour field of
`*` or `*/n` follows elapsed time instead: it runs in both repeated hours, and `*` is not made up
for after a skipped hour, because the next hour's run is there (docs/contract/scheduler.md 4.3). A
rate counts elapsed time and knows no zone.
"""

from queuegate.protocol.expressions.aws import parse_aws
from queuegate.protocol.expressions.descriptions import human_readable
from queuegate.protocol.expressions.forms import parse_form
from queuegate.protocol.expressions.phrases import PHRASES, PHRASES_READ_AT
from queuegate.protocol.expressions.refusal import Unparsable
from queuegate.protocol.expressions.timing import Timing, canonical

__all__ = [
    "PHRASES",
    "PHRASES_READ_AT",
    "Timing",
    "Unparsable",
    "canonical",
    "human_readable",
    "parse_aws",
    "parse_form",
]
