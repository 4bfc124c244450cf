"""Defaults of the servers that a gateway replaces in tests: LocalStack, ElasticMQ and moto."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from queuegate.gateway.configuration.values import is_loopback


class SwapIn(NamedTuple):
    """A server's port, account and region, and the line that it prints when it is ready."""

    port: int
    ready_line: str
    account_id: str = "000000000000"
    region: str = "us-east-1"
    init_dir: str = ""
    config: str = ""
    """A seed file that is read if it exists."""


SWAP_INS = {
    "localstack": SwapIn(4566, "Ready.", init_dir="/etc/localstack/init"),
    "elasticmq": SwapIn(
        9324, "Started SQS rest server", region="elasticmq", config="/opt/elasticmq.conf"
    ),
    "moto": SwapIn(5000, " * Running on http://127.0.0.1:5000", account_id="123456789012"),
}
_JAVA_OPTIONS = "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "JAVA_OPTS"
_SERVICES = {"sqs", "sns", "scheduler", "sts"}


def defaults_of(like: str, environ: Mapping[str, str], *, is_kept: bool) -> dict[str, str]:
    """Return texts by names of settings, for settings that are not given.

    ``is_kept``: a data directory or a database is given, so data is not ephemeral. Variables of
    these servers count: GATEWAY_LISTEN, LOCALSTACK_HOST, HOSTNAME_EXTERNAL, DEFAULT_REGION,
    PERSISTENCE; MOTO_PORT.
    """
    server = SWAP_INS[like]
    texts = {
        "port": str(server.port),
        "account_id": server.account_id,
        "region": server.region,
        "auth": "none",
        "ephemeral": "false" if is_kept else "true",
    }
    if like == "elasticmq":
        # As the image's command does, unless Java has another option.
        options = " ".join(environ.get(name, "") for name in _JAVA_OPTIONS)
        named = re.findall(r"-Dconfig\.file=(\S+)", options)
        path = Path(named[-1] if named else server.config)
        texts |= {"config": str(path)} if named or path.is_file() else {}
    if server.init_dir:
        texts["init_dir"] = server.init_dir
    if like == "moto" and environ.get("MOTO_PORT"):
        texts["port"] = environ["MOTO_PORT"]
    if like != "localstack":
        return texts
    texts["allowed_hosts"] = "localhost.localstack.cloud"
    if environ.get("PERSISTENCE", "").lower() in ("1", "true"):
        texts["ephemeral"] = "false"
    if environ.get("DEFAULT_REGION"):
        texts["region"] = environ["DEFAULT_REGION"]
    host, _, port = environ.get("GATEWAY_LISTEN", "").split(",")[0].rpartition(":")
    if host:
        texts["hosts"] = host
        texts["port"] = port
    links = environ.get("LOCALSTACK_HOST") or environ.get("HOSTNAME_EXTERNAL", "")
    if ":" in links:
        texts["base_url"] = f"http://{links}"
    elif links and not is_loopback(links):
        # A name of loopback comes from outside a container, where the port is another one: queue
        # URLs then have the host and the port of the request.
        texts["base_url"] = f"http://{links}:{texts['port']}"
    return texts


def missing_services(like: str | None, environ: Mapping[str, str]) -> list[str]:
    """Return the members of LocalStack's SERVICES that a gateway does not have."""
    named = environ.get("SERVICES", "") if like == "localstack" else ""
    names = {name.partition(":")[0].strip().lower() for name in named.split(",")}
    return sorted(names - _SERVICES - {""})
