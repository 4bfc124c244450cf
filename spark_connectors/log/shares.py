"""How many records a batch takes of each partition, and which tasks read them."""

from __future__ import annotations

from collections.abc import Sequence

from spark_connectors.log.positions import Span


def limited(sizes: Sequence[int], most: int, turn: int) -> list[int]:
    """So many of each, ``most`` together, in proportion to what each has.

    What rounding leaves goes by ones, first to those that would get nothing, beginning at number
    ``turn``: whoever moves that on with every batch leaves nobody out for long.
    """
    total = sum(sizes)
    if total <= most:
        return list(sizes)
    shares = [size * most // total for size in sizes]
    left = most - sum(shares)
    count = len(sizes)
    order = [(turn + number) % count for number in range(count)]
    without = [at for at in order if sizes[at] and not shares[at]]
    others = [at for at in order if shares[at] and shares[at] < sizes[at]]
    for at in (without + others)[:left]:
        shares[at] += 1
    return shares


def joined(spans: Sequence[Span], tasks: int) -> list[list[Span]]:
    """The spans in at most so many tasks of about the same size, none of them cut."""
    total = sum(span.size for span in spans)
    found: list[list[Span]] = [[] for _ in range(tasks)]
    before = 0
    for span in spans:
        # Where its middle lies: never past the last task, for a span is not empty.
        found[(2 * before + span.size) * tasks // (2 * total)].append(span)
        before += span.size
    return [task for task in found if task]


def cut(spans: Sequence[Span], tasks: int) -> list[list[Span]]:
    """The spans in so many tasks of the same size, cut where that takes it; fewer where there are
    not so many records."""
    total = sum(span.size for span in spans)
    tasks = min(tasks, total)
    found: list[list[Span]] = [[] for _ in range(tasks)]
    number, left = 0, 0
    for span in spans:
        at = span.start
        while at < span.stop:
            if not left:
                left = (number + 1) * total // tasks - number * total // tasks
                number += 1
            stop = min(span.stop, at + left)
            left -= stop - at
            found[number - 1].append(span._replace(start=at, stop=stop))
            at = stop
    return found


def shared_out(spans: Sequence[Span], least: int | None, otherwise: int) -> list[list[Span]]:
    """The tasks of a batch. ``least``: so many, or more where there are more spans than that, each
    whole; None: ``otherwise``, or fewer where there are fewer spans."""
    if not spans:
        return []
    if least is not None and least > len(spans):
        return cut(spans, least)
    return joined(spans, least or otherwise)
