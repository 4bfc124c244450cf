"""Measure the connectors against a gateway on this machine.

Messages of 500 bytes; the gateway keeps what it acknowledges (fsync). Everything shares the
machine's cores: what the gateway takes of them is given apart.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[3]
RATES: dict[str, dict[str, object]] = {
    "driver": {},
    "driver-columns": {"columns": "body,message_id,sent_timestamp"},
    "log": {"of": "log"},
    "log-large": {"of": "log", "maxOffsetsPerTrigger": 100_000},
}
LATENESS: dict[str, dict[str, object]] = {
    "latency-driver": {},
}

FILE_MANAGER = (
    "spark.sql.streaming.checkpointFileManagerClass",
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager",
)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.spark.bench", description=__doc__)
    known = [*RATES, *LATENESS]
    parser.add_argument("scenarios", nargs="*", metavar="SCENARIO", help=", ".join(known))
    parser.add_argument(
        "--messages", type=int, default=240_000, help="of a rate (default: 240,000)"
    )
    parser.add_argument(
        "--warm",
        type=int,
        default=5_000,
        help="messages before that, of which nothing is said (default: 5,000; the JVM's compilers "
        "are at work for some hundred thousand)",
    )
    parser.add_argument("--threads", type=int, help="receiveThreads (default: the option's own)")
    parser.add_argument(
        "--no-forks",
        action="store_true",
        help=f"set {FILE_MANAGER[0]} as the guide advises: no process for each checkpoint file",
    )
    parser.add_argument("--seconds", type=int, default=30, help="of a latency (default: 30)")
    found = parser.parse_args()
    unknown = [one for one in found.scenarios if one not in known]
    if unknown:
        parser.error(f"unknown: {', '.join(unknown)}; there are {', '.join(known)}")
    found.scenarios = found.scenarios or known
    return found


def _session() -> SparkSession:
    from pyspark.sql import SparkSession

    import spark_connectors

    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.memory", "2g")
        .config("spark.sql.shuffle.partitions", "2")
        # All of them are added up.
        .config("spark.sql.streaming.numRecentProgressUpdates", "100000")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    spark_connectors.register(session)
    return session


def main() -> None:
    """Run the scenarios one after the other and print a line for each."""
    arguments = _arguments()
    os.environ.update(
        AWS_ACCESS_KEY_ID="bench",
        AWS_SECRET_ACCESS_KEY="bench",
        PYSPARK_PYTHON=sys.executable,
        SPARK_LOCAL_IP="127.0.0.1",
        PYTHONPATH=str(ROOT),
    )
    from tests.spark.bench import streams
    from tests.spark.bench.processes import gateway

    session = _session()
    if arguments.no_forks:
        session.conf.set(*FILE_MANAGER)
    with gateway() as served:
        # Classes of the JVM and of the workers are loaded once, not in the first figure.
        streams.rate(session, served, "warm", arguments.warm)
        for name in arguments.scenarios:
            if name in RATES:
                options = dict(RATES[name])
                if arguments.threads and "of" not in options:
                    options["receiveThreads"] = arguments.threads
                found = streams.rate(session, served, name, arguments.messages, **options)
                print(
                    f"{name}: {found.per_second:,.0f} messages/s in {found.batches} batches; "
                    f"CPU a message: gateway {found.gateway_us:.0f} us, "
                    f"Spark with the connector {found.spark_us:.0f} us",
                    flush=True,
                )
            else:
                late = streams.lateness(session, served, name, arguments.seconds, **LATENESS[name])
                print(
                    f"{name}: p50 {late.p50:.2f} s, p95 {late.p95:.2f} s, p99 {late.p99:.2f} s at "
                    f"200 messages/s; a batch takes {late.batch_ms:.0f} ms",
                    flush=True,
                )
    session.stop()


if __name__ == "__main__":
    main()
