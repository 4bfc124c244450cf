"""`python -m spark_connectors spool`: messages of a spool go back to its queue."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from spark_connectors.__main__ import main
from spark_connectors.errors import DataLost
from spark_connectors.source.queue_stream_reader import QueueStreamReader
from spark_connectors.spool import SpoolTaken
from tests.spark.clocks import Clock
from tests.spark.queues import bodies_of, client_of, counts, fill, queue_with
from tests.spark.readers import Run, reader_of
from tests.spark.waiting import wait_for

Maker = Callable[..., str]
HOW = {"maxOffsetsPerTrigger": 10, "visibilityTimeout": 600}


def spool(what: str, gateway: str, url: str, path: Path, **options: object) -> int:
    given = {"spoolPath": path, "queueUrl": url, "endpointUrl": gateway, "region": "us-east-1"}
    return main(["spool", what, *(f"{n}={v}" for n, v in (given | HOW | options).items())])


def planned(reader: QueueStreamReader, batches: int = 1) -> Run:
    """A run that has planned so many batches, of which none is committed; its driver is gone."""
    run = Run(reader)
    begun = run.offset
    for _ in range(batches):
        end = run.plan_some()
        run.offset = end
    reader.stop()
    run.offset = begun
    return run


def taken(gateway: str, url: str, count: int) -> list[dict[str, Any]]:
    """So many messages, received and deleted."""
    client, found = client_of("sqs", gateway), []

    def has_all() -> bool:
        answer = client.receive_message(
            QueueUrl=url,
            MaxNumberOfMessages=10,
            MessageAttributeNames=["All"],
            AttributeNames=["All"],
        )
        for message in answer.get("Messages", []):
            client.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
            found.append(message)
        return len(found) >= count

    wait_for(has_all)
    assert counts(gateway, url) == (0, 0)
    return found


def test_what_the_queue_has_is_shown(
    gateway: str, make_queue: Maker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = queue_with(25, gateway, make_queue)
    how = {"deleteMode": "commit"}
    run = Run(reader_of(gateway, url, tmp_path, **HOW, **how))
    first = [row["body"] for row in run.all_rows(10)]
    run.all_rows(10)
    assert run.reader._deleter.flush(30)
    run.reader.stop()
    assert spool("list", gateway, url, tmp_path, **how) == 0
    listed = capsys.readouterr().out
    assert "messages, not committed, in the queue" in listed
    assert spool("return", gateway, url, tmp_path, **how) == 0
    assert capsys.readouterr().out.endswith(" messages shown again, 0 sent again\n")
    assert spool("list", gateway, url, tmp_path, **how) == 0
    assert "not committed" not in capsys.readouterr().out
    back = Counter(message["Body"] for message in taken(gateway, url, 15))
    # Once each: all but those of the batch that the spool knows to be committed.
    assert back == Counter(set(bodies_of(25)) - set(first))


@pytest.mark.parametrize("name", ["standard", "fifo"])
def test_what_was_deleted_from_the_queue_is_sent_again(
    gateway: str, make_queue: Maker, tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    is_fifo = name == "fifo"
    url = make_queue(gateway, fifo=True) if is_fifo else make_queue(gateway)
    group = {"MessageGroupId": "g", "MessageDeduplicationId": "d"} if is_fifo else {}
    attributes = {
        "text": {"DataType": "String.x", "StringValue": "é"},
        "bytes": {"DataType": "Binary", "BinaryValue": b"\x00\x01"},
    }
    client_of("sqs", gateway).send_message(
        QueueUrl=url, MessageBody="with attributes", MessageAttributes=attributes, **group
    )
    fill(gateway, url, bodies_of(9), group=(lambda _: "g") if is_fifo else None)
    planned(reader_of(gateway, url, tmp_path, deleteMode="spool", **HOW))
    wait_for(lambda: counts(gateway, url) == (0, 0) and list((tmp_path / "done").glob("*")))
    assert spool("return", gateway, url, tmp_path, deleteMode="spool") == 0
    assert capsys.readouterr().out == "0 messages shown again, 10 sent again\n"
    # A second time there is nothing left.
    assert spool("return", gateway, url, tmp_path, deleteMode="spool") == 0
    assert capsys.readouterr().out == "0 messages shown again, 0 sent again\n"
    found = taken(gateway, url, 10)
    assert sorted(one["Body"] for one in found) == sorted(["with attributes", *bodies_of(9)])
    [one] = [one for one in found if one["Body"] == "with attributes"]
    assert one["MessageAttributes"] == attributes
    if is_fifo:
        assert [one["Body"] for one in found] == ["with attributes", *bodies_of(9)]
        assert {one["Attributes"]["MessageGroupId"] for one in found} == {"g"}


def test_what_may_be_gone_is_sent_again(
    gateway: str,
    make_queue: Maker,
    tmp_path: Path,
    clock: Clock,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Somebody else has received and deleted some meanwhile: nobody can tell, so they are there."""
    url = queue_with(10, gateway, make_queue)
    planned(reader_of(gateway, url, tmp_path, **HOW))
    clock.advance(700)
    wait_for(lambda: counts(gateway, url) == (10, 0))
    taken(gateway, url, 10)
    assert spool("return", gateway, url, tmp_path) == 0
    assert capsys.readouterr().out == "0 messages shown again, 10 sent again\n"
    assert sorted(one["Body"] for one in taken(gateway, url, 10)) == sorted(bodies_of(10))


def test_a_query_on_the_spool_ends(gateway: str, make_queue: Maker, tmp_path: Path) -> None:
    url = queue_with(10, gateway, make_queue)
    run = Run(reader_of(gateway, url, tmp_path, **HOW))
    start, end = run.offset, run.plan_some()
    assert spool("return", gateway, url, tmp_path) == 0
    fill(gateway, url, bodies_of(10))
    run.offset = end
    with pytest.raises(SpoolTaken):
        run.plan_some()
    again = reader_of(gateway, url, tmp_path, **HOW)
    with pytest.raises(DataLost, match="not in the spool"):
        again.partitions(start, end)


def test_what_is_no_spool_is_told(
    gateway: str, make_queue: Maker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = queue_with(1, gateway, make_queue)
    for what in ("list", "return"):
        assert spool(what, gateway, url, tmp_path / "none") == 1
        assert "there is no spool at" in capsys.readouterr().err
    planned(
        reader_of(gateway, url, tmp_path / "spool", columns="sent_timestamp", deleteMode="spool")
    )
    wait_for(lambda: list((tmp_path / "spool/done").glob("*")))
    assert spool("return", gateway, url, tmp_path / "spool") == 1
    assert "were received without body" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["spool", "list", "spoolPath"])
