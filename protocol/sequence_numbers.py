"""How the numbers of FIFO queues and topics are shown: like AWS's, twenty digits of which the first
is none (docs/contract/sqs.md 2.7). Clients that compare them as texts get the order of the numbers.
"""

from __future__ import annotations

_QUEUE = 18 * 10**18
_TOPIC = 10**19


def of_queue(sequence: int) -> str:
    """The SequenceNumber of a message in a FIFO queue."""
    return str(_QUEUE + sequence)


def of_topic(sequence: int) -> str:
    """The SequenceNumber of a message that was published to a FIFO topic."""
    return str(_TOPIC + sequence)
