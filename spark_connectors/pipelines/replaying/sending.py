"""What a task of a replay does: send a chunk, write it into the ledger, then the next."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from spark_connectors.pipelines.replaying.ledger import BucketLedger
from spark_connectors.pipelines.replaying.selection import BUCKET
from spark_connectors.spool.opening import open_store
from spark_connectors.transport.http.rate_limit import RateLimit

if TYPE_CHECKING:
    import pyarrow as pa

    from spark_connectors.sink.writing import BatchWriter

RESULT = "bucket int, sent long, skipped long"


class ReplayTask(NamedTuple):
    """What every task needs to know; picklable. ``rate``: messages a second, for a single task."""

    writer: BatchWriter
    ledger: str
    chunk: int
    rate: int | None

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Send the rows that the ledger does not have; yields counts by RESULT."""
        import pyarrow as pa

        ledgers: dict[int, BucketLedger] = {}
        # Between chunks: within one the sink keeps the rate.
        limit = RateLimit(self.rate)
        for batch in batches:
            for part in _by_bucket(batch):
                bucket = part.column(BUCKET)[0].as_py()
                if bucket not in ledgers:
                    # A bucket's rows are together: what was known of the others is not needed.
                    ledgers = {bucket: BucketLedger(open_store(self.ledger, name="ledger"), bucket)}
                sent = self._send(part, ledgers[bucket], limit)
                yield pa.RecordBatch.from_arrays(
                    [
                        pa.array([bucket], pa.int32()),
                        pa.array([sent], pa.int64()),
                        pa.array([part.num_rows - sent], pa.int64()),
                    ],
                    names=["bucket", "sent", "skipped"],
                )

    def _send(self, part: pa.RecordBatch, ledger: BucketLedger, limit: RateLimit) -> int:
        unsent = ledger.unsent(part)
        for start in range(0, unsent.num_rows, self.chunk):
            chunk = unsent.slice(start, self.chunk)
            limit.wait(chunk.num_rows)
            self.writer.write(iter([chunk]))
            ledger.add(chunk)
        return int(unsent.num_rows)


def _by_bucket(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Runs of rows of one bucket."""
    buckets = batch.column(BUCKET).to_pylist()
    start = 0
    for at in range(1, len(buckets) + 1):
        if at == len(buckets) or buckets[at] != buckets[start]:
            yield batch.slice(start, at - start)
            start = at
