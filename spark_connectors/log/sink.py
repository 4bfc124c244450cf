"""The log's sink: rows become records, each once where its id is the same again."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from spark_connectors.errors import Fault
from spark_connectors.log.calls import LogCalls, shared_calls
from spark_connectors.log.sink_columns import LogColumns, find_log_columns
from spark_connectors.log.sink_options import SinkSettings, sink_settings
from spark_connectors.options.declaring import BadOption
from spark_connectors.sink.deduplication import Identity, ids_of_columns
from spark_connectors.sink.messages import RowRefused
from spark_connectors.sink.packing import Batching, Destination, Outgoing
from spark_connectors.sink.sending import Pace
from spark_connectors.sink.writing import Manner
from spark_connectors.transport.http import json_text

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

# The limits of a record, and of a request: of its body, and of the commas between its members.
_MOST_RECORD_BYTES = 1 << 20
_MOST_NAME = {"key": 256, "id": 128}
_MOST_HEADERS = 100
_MOST_BYTES = 4 << 20
_MOST_VALUES = 9_000
_PLAIN_VALUES = 5
# Escapes make a text longer than base64 would be.
_TOO_MANY_ESCAPES = 1.4
# Rows among which requests are made.
_WINDOW = 4_000


class Record(NamedTuple):
    """A record as it is sent: JSON, and how many values that is. ``group_id``: its key."""

    group_id: str | None
    text: bytes
    values: int


class LogPlan(NamedTuple):
    """What every task of a write needs to know; it can be pickled."""

    settings: SinkSettings
    columns: LogColumns

    @property
    def name(self) -> str:
        """For messages."""
        return "queuegate-log sink"

    @property
    def manner(self) -> Manner:
        """How tasks go about it."""
        settings = self.settings
        pace = Pace(
            window=max(_WINDOW, settings.most_records),
            max_retries=settings.connection.max_retries,
            most_per_second=settings.most_per_second,
            concurrency=settings.concurrency,
        )
        batching = Batching(settings.most_records, one_per_group=False)
        return Manner(batching, pace, self.columns.order_by, settings.summary_path)

    def open(self, identity: Identity) -> Records:
        """What the rows of one partition are sent to."""
        return Records(self, identity, shared_calls(self.settings.connection))


def planned(given: Mapping[str, str], schema: StructType, *, overwrite: bool) -> LogPlan:
    """Raises BadOption and BadColumns."""
    settings = sink_settings(given)
    if overwrite:
        raise BadOption(
            "records cannot be overwritten: use mode('append'), in a stream outputMode 'append' or "
            "'update'; whoever wants the log empty before purges it"
        )
    return LogPlan(settings, find_log_columns(schema, settings))


class Records:
    """Logs, as the rows of one partition are sent to them."""

    def __init__(self, plan: LogPlan, identity: Identity, calls: LogCalls) -> None:
        self._plan = plan
        self._calls = calls
        self._where = f"of partition {identity.partition}"
        self._start = hashlib.blake2b(f"{identity.job}|{identity.partition}|".encode())
        self._seen: dict[bytes, int] = {}
        self._logs: dict[str, Destination] = {}
        self._position = 0

    def pack(self, batch: pa.RecordBatch) -> Iterator[Outgoing[Record]]:
        """Each row as a record. Raises RowRefused."""
        columns = self._plan.columns
        headers = _values(batch, columns.headers)
        for log, key, value, header, given_id in zip(
            _values(batch, columns.log),
            _values(batch, columns.key),
            _values(batch, columns.value),
            headers,
            self._ids(batch),
            strict=True,
        ):
            record = self._record(key, value, header, given_id)
            size = len(record.text) + 1
            yield Outgoing(record, size, self._destination(log), self._position)
            self._position += 1

    def send(self, destination: Destination, entries: Sequence[Record]) -> list[None]:
        """Publish them, in as many requests as their values need."""
        part: list[bytes] = []
        values = 0
        for entry in entries:
            if part and values + entry.values > _MOST_VALUES:
                self._calls.publish(destination.address, part)
                part, values = [], 0
            part.append(entry.text)
            values += entry.values
        self._calls.publish(destination.address, part)
        return [None] * len(entries)

    def refused(self, row: Outgoing[Record], fault: Fault) -> NoReturn:
        """A log takes all records of a request or none, so this is not asked."""
        self._refuse(fault.code, fault.message, row.position)

    def _ids(self, batch: pa.RecordBatch) -> Sequence[str | None]:
        columns = self._plan.columns
        if columns.deduplication == "column":
            return _values(batch, columns.record_id)
        if columns.deduplication == "columns":
            return ids_of_columns(batch, columns.deduplication_columns)
        return [None] * batch.num_rows

    def _destination(self, log: str | None) -> Destination:
        name = self._plan.settings.log or log
        if not name:
            self._refuse("NoLog", "the column topic is null, and there is no option topic")
        found = self._logs.get(name)
        if found is None:
            # With more than one request under way only the packer keeps the order of a key.
            keeps_order = self._plan.settings.concurrency > 1
            found = self._logs[name] = Destination(name, _MOST_BYTES, is_fifo=keeps_order)
        return found

    def _record(self, key: Any, value: Any, headers: Any, given_id: str | None) -> Record:
        if value is None:
            self._refuse("NoValue", "its value is null, and a record has a payload")
        payload = value if isinstance(value, bytes) else value.encode()
        text_key = self._text("key", key) if key is not None else ""
        said: dict[str, object] = {"key": text_key}
        metadata = self._metadata(headers)
        if metadata:
            said["metadata"] = metadata
        size = len(payload) + (len(json_text.dumps(metadata)) if metadata else 0)
        if size > _MOST_RECORD_BYTES:
            self._refuse("TooLarge", f"it has {size} bytes, of at most {_MOST_RECORD_BYTES}")
        record_id = given_id
        if self._plan.columns.deduplication == "rows":
            record_id = self._id_of(text_key, payload, metadata)
        if record_id is not None:
            said["id"] = self._text("id", record_id)
        text = json_text.dumps(said | _payload(payload))
        return Record(text_key, text, _PLAIN_VALUES + len(metadata))

    def _id_of(self, key: str, payload: bytes, metadata: Mapping[str, str]) -> str:
        """The same for a row that says the same in this task of this batch; rows that are alike are
        counted, so none of them is taken for another."""
        digest = self._start.copy()
        # Lengths, so that no key can be taken for the begin of a payload.
        about = json_text.dumps([key, len(payload), sorted(metadata.items())])
        digest.update(about)
        digest.update(payload)
        found = digest.digest()[:20]
        number = self._seen.get(found, 0)
        self._seen[found] = number + 1
        return f"{found.hex()}-{number}" if number else found.hex()

    def _metadata(self, headers: Any) -> dict[str, str]:
        if not headers:
            return {}
        # A map comes as pairs, Kafka's headers as structs.
        pairs = [(one["key"], one["value"]) if isinstance(one, dict) else one for one in headers]
        if len(pairs) > _MOST_HEADERS:
            self._refuse("TooLarge", f"it has {len(pairs)} headers, of at most {_MOST_HEADERS}")
        there = [(name, self._text("headers", value)) for name, value in pairs if value is not None]
        found = dict(there)
        if len(found) < len(there):
            self._refuse("DoubleHeader", "it has a header twice, and a log each name once")
        return found

    def _text(self, name: str, value: Any) -> str:
        try:
            text: str = value.decode() if isinstance(value, bytes) else value
        except UnicodeDecodeError:
            self._refuse("NoText", f"its {name} is binary and no UTF-8, and a log has texts there")
        if not len(text) <= _MOST_NAME.get(name, _MOST_RECORD_BYTES):
            self._refuse("TooLarge", f"its {name} has more than {_MOST_NAME[name]} characters")
        return text

    def _refuse(self, code: str, why: str, position: int | None = None) -> NoReturn:
        number = self._position if position is None else position
        raise RowRefused(f"row {number} {self._where}: {code}: {why}")


def _values(batch: pa.RecordBatch, name: str | None) -> Sequence[Any]:
    if name is None:
        return [None] * batch.num_rows
    found: list[Any] = batch.column(name).to_pylist()
    return found


def _payload(payload: bytes) -> dict[str, object]:
    """As text where it is one and is not mostly escapes, else in base64."""
    try:
        text = payload.decode()
    except UnicodeDecodeError:
        pass
    else:
        if text.isprintable() or len(json_text.dumps(text)) <= _TOO_MANY_ESCAPES * len(payload) + 8:
            return {"payload": text}
    return {"payload": base64.b64encode(payload).decode("ascii"), "encoding": "base64"}
