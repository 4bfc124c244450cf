"""A process of Spark that calls back before it imports anything.

Spark starts one for each stream, and gives it ten seconds: on a machine with other work, an
interpreter that has to import first may need more.
"""

from __future__ import annotations

import os
import socket
import struct
import sys
from io import BufferedRWPair


def connected(port: int, secret: str) -> tuple[BufferedRWPair, socket.socket]:
    """A connection to the JVM that has shown the secret, as pyspark.util makes one."""
    opened = socket.create_connection(("127.0.0.1", port), 60)
    stream = opened.makefile("rwb")
    stream.write(struct.pack("!i", len(secret)) + secret.encode())
    stream.flush()
    assert stream.read(6) == struct.pack("!i", 2) + b"ok"
    return stream, opened


def run(module: str) -> None:
    """Run that module of PySpark with the connection that there is."""
    variables = os.environ
    connection = connected(
        int(variables["PYTHON_WORKER_FACTORY_PORT"]), variables["PYTHON_WORKER_FACTORY_SECRET"]
    )
    import runpy

    import pyspark.util
    import pyspark.worker_util

    for each in (pyspark.util, pyspark.worker_util):
        vars(each)["local_connect_and_auth"] = lambda *_: connection
    runpy.run_module(module, run_name="__main__")


if __name__ == "__main__":
    run(sys.argv[1])
