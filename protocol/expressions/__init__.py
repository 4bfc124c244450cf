"""Schedule expressions: the forms that people write, and the instants that follow.

Callers pass "now": the package has no clock. A cron expression is read in its zone. A local time
that a clock change skips fires at the first instant after the change. A local time that occurs
twice fires the first time only. An hour field of `*` or `*/n` follows elapsed time instead: it
fires in both repeated hours, and `*` does not catch up after a skipped hour, because the next hour
fires anyway (docs/contract/scheduler.md 4.3). A rate counts elapsed time without a zone.
"""

from queuegate.protocol.expressions.calendars import Unparsable
from queuegate.protocol.expressions.descriptions import human_readable
from queuegate.protocol.expressions.expression_forms import parse_aws, parse_form
from queuegate.protocol.expressions.phrases import PHRASES, PHRASES_READ_AT
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
