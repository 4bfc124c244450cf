"""The rows of the guide to trouble that are about logs."""

from __future__ import annotations

from typing import Any

import pytest

from tests.spark.logs import LogRun, ask, batch_rows, log_with, new_name, publish, values_of
from tests.spark.stage import Stage, play

AGAIN = {"failOnDataLoss": "false"}


def _read(stage: Stage) -> tuple[str, dict[str, Any]]:
    """A log of three records, and the offset of a query that has read them."""
    log = log_with(3, stage.gateway)
    run = LogRun(stage.gateway, subscribe=log, startingOffsets="earliest")
    run.begin()
    assert len(run.next_rows()) == 3
    return log, run.offset


@play("ConnectorError: logs are Queuegate's own: …")
def _(stage: Stage) -> None:
    log = log_with(1, stage.gateway)
    with pytest.MonkeyPatch.context() as environment, stage.says():
        environment.delenv("AWS_ENDPOINT_URL", raising=False)
        batch_rows("", subscribe=log)
    assert len(batch_rows(stage.gateway, subscribe=log)) == 1


@play("Refused: LogDoesNotExist: … (asking for log '…')")
def _(stage: Stage) -> None:
    log = new_name()
    with stage.says():
        LogRun(stage.gateway, subscribe=log).plan()
    publish(stage.gateway, log, [("k", "first")])
    LogRun(stage.gateway, subscribe=log).begin()


@play("BadOffset: the checkpoint has an offset that is of no log: …")
def _(stage: Stage) -> None:
    log = log_with(1, stage.gateway)
    with stage.says():
        LogRun(stage.gateway, {"spool": "another", "seq": 7}, subscribe=log).plan()
    LogRun(stage.gateway, subscribe=log).begin()


@play("DataLost: offsets … of partition … of log '…' are gone: …")
def _(stage: Stage) -> None:
    log, offset = _read(stage)
    publish(stage.gateway, log, [("k0", "lost")])
    ask(stage.gateway, "POST", f"/{log}/purge")
    publish(stage.gateway, log, [("k0", "kept")])
    with stage.says():
        LogRun(stage.gateway, offset, subscribe=log).plan()
    again = LogRun(stage.gateway, offset, subscribe=log, **AGAIN)
    assert values_of(again.some_rows()) == ["kept"]


@play("DataLost: partition … of log '…' ends at …, and … was reached before: …")
def _(stage: Stage) -> None:
    log, offset = _read(stage)
    # A checkpoint of an earlier version.
    del offset[log]["created_at"]
    ask(stage.gateway, "DELETE", f"/{log}")
    publish(stage.gateway, log, [("k0", "anew")])
    with stage.says():
        LogRun(stage.gateway, offset, subscribe=log).plan()
    again = LogRun(stage.gateway, offset, subscribe=log, **AGAIN)
    assert values_of(again.some_rows()) == ["anew"]


@play("DataLost: log '…' was deleted and made anew at …")
def _(stage: Stage) -> None:
    log, offset = _read(stage)
    ask(stage.gateway, "DELETE", f"/{log}")
    publish(stage.gateway, log, [("k0", f"anew {one}") for one in range(5)])
    with stage.says():
        LogRun(stage.gateway, offset, subscribe=log).plan()
    again = LogRun(stage.gateway, offset, subscribe=log, **AGAIN)
    assert values_of(again.some_rows()) == [f"anew {one}" for one in range(5)]


@play("DataLost: log '…' is gone, …")
def _(stage: Stage) -> None:
    log, offset = _read(stage)
    ask(stage.gateway, "DELETE", f"/{log}")
    with stage.says():
        LogRun(stage.gateway, offset, subscribePattern=log).plan()
    again = LogRun(stage.gateway, offset, subscribePattern=log, **AGAIN)
    assert again.next_rows() == []
