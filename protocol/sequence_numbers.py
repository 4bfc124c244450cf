"""How the numbers of FIFO queues and topics are shown: like AWS's, twenty digits of which the first
is none (docs/contract/sqs.md 2.7). Clients that compare them as texts get the order of the numbers.
"""

from __future__ import annotations

# No twelve digits of them in a row are zeros: recordings that mask account numbers stay whole.
_QUEUE = 18_849_496_460_467_696_128
_TOPIC = 10_009_496_460_467_696_128


def of_queue(sequence: int) -> str:
    """The SequenceNumber of a message in a FIFO queue."""
    return str(_QUEUE + sequence)


def of_topic(sequence: int) -> str:
    """The SequenceNumber of a message that was published to a FIFO topic."""
    return str(_TOPIC + sequence)
