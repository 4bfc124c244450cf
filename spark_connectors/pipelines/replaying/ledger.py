"""What a replay has sent already: one small file for each chunk, written when it was sent.

A queue that is not FIFO forgets what it was sent, and a FIFO queue does after minutes. Files are
Parquet, so that ``spark.read.parquet`` shows what a replay sent.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
from typing import TYPE_CHECKING, NamedTuple

from spark_connectors.errors import ConnectorError
from spark_connectors.spool.opening import open_store
from spark_connectors.spool.stores import Store

if TYPE_CHECKING:
    import pyarrow as pa

_ABOUT = "replay.json"
_CHUNK = re.compile(r"bucket=\d+/(\d+)-(\d+)\.parquet$")


class ReplayMismatch(ConnectorError):
    """A replay id that was used for something else, or is used by two at once."""


class ReplayHeader(NamedTuple):
    """What must not change between runs of a replay."""

    destination: str
    buckets: int


def begin_replay(path: str, wanted: ReplayHeader) -> ReplayHeader:
    """The header of the replay whose ledger is at ``path``: the one there is, or this one.

    Raises ReplayMismatch when its id was used for another destination.
    """
    store = open_store(path, name="ledger")
    store.put_if_absent(_ABOUT, json.dumps(wanted._asdict()).encode())
    found = ReplayHeader(**json.loads(store.get(_ABOUT)))
    if found.destination != wanted.destination:
        raise ReplayMismatch(
            f"this replay id was used to send to {found.destination}: take another for "
            f"{wanted.destination}"
        )
    return found


def sent_count(path: str) -> int:
    """How many messages the ledger at ``path`` has: from the names alone."""
    matches = (_CHUNK.fullmatch(name) for name in open_store(path, name="ledger").names("bucket="))
    return sum(int(match[2]) for match in matches if match)


class BucketLedger:
    """The ledger of one bucket, kept by the task that sends it."""

    def __init__(self, store: Store, bucket: int) -> None:
        self._store = store
        self._prefix = f"bucket={bucket:05}/"
        self._next = 1
        self._known: set[bytes] = set()
        for name in store.names(self._prefix):
            match = _CHUNK.fullmatch(name)
            if match:
                self._next = max(self._next, int(match[1]) + 1)
                self._known.update(_read(store.get(name)))

    def unsent(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows that this replay has not sent yet."""
        import pyarrow as pa

        if not self._known:
            return batch
        return batch.filter(pa.array([key not in self._known for key in _keys(batch)]))

    def add(self, batch: pa.RecordBatch) -> None:
        """Remember rows that were sent; durable when this returns.

        Raises ReplayMismatch when another task sends this bucket: the service may then have them
        twice.
        """
        name = f"{self._prefix}{self._next:08}-{batch.num_rows}.parquet"
        if self._store.names(f"{self._prefix}{self._next:08}-") or not self._store.put_if_absent(
            name, _written(batch)
        ):
            raise ReplayMismatch("another run sends the same replay: messages may be there twice")
        self._next += 1


def _keys(batch: pa.RecordBatch) -> list[bytes]:
    """16 bytes that say which message: a set of millions of them fits into a task."""
    queues, ids = batch.column("queue").to_pylist(), batch.column("message_id").to_pylist()
    return [
        hashlib.blake2b(f"{queue}\0{message_id}".encode(), digest_size=16).digest()
        for queue, message_id in zip(queues, ids, strict=True)
    ]


def _written(batch: pa.RecordBatch) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet

    out = io.BytesIO()
    table = pa.Table.from_batches([batch.select(["queue", "message_id"])])
    pyarrow.parquet.write_table(table, out, compression="zstd")
    return out.getvalue()


def _read(data: bytes) -> list[bytes]:
    import pyarrow.parquet

    table = pyarrow.parquet.read_table(io.BytesIO(data), columns=["queue", "message_id"])
    return [key for batch in table.to_batches() for key in _keys(batch)]
