"""Drives boto3, of whichever version this interpreter has (clients/README.md)."""

from __future__ import annotations

import base64
import json
import os
import sys
from datetime import datetime
from typing import Any

import boto3  # type: ignore[import-untyped]
from botocore.config import Config  # type: ignore[import-untyped]
from botocore.exceptions import BotoCoreError, ClientError  # type: ignore[import-untyped]
from botocore.parsers import ResponseParserError  # type: ignore[import-untyped]


def with_bytes(value: Any) -> Any:
    """Return a JSON value with its marked bytes decoded."""
    if isinstance(value, dict):
        if value.keys() == {"$base64"}:
            return base64.b64decode(value["$base64"])
        return {key: with_bytes(item) for key, item in value.items()}
    return [with_bytes(item) for item in value] if isinstance(value, list) else value


def without_bytes(value: object) -> dict[str, str] | str:
    """Bytes and instants as JSON holds them."""
    if isinstance(value, datetime):
        return value.isoformat()
    assert isinstance(value, bytes)
    return {"$base64": base64.b64encode(value).decode()}


def answer(clients: dict[str, Any], line: str) -> dict[str, Any]:
    """Do what a line asks for."""
    asked = json.loads(line)
    client = clients[asked["service"]]
    operations = {action: name for name, action in client.meta.method_to_api_mapping.items()}
    try:
        call = getattr(client, operations[asked["action"]])
        result = call(**with_bytes(asked["members"]))
    except ClientError as error:
        refused = error.response["Error"]
        return {
            "refused": {
                "code": refused["Code"],
                "text": refused["Message"],
                "status": error.response["ResponseMetadata"]["HTTPStatusCode"],
                "exception": type(error).__name__,
            }
        }
    except (BotoCoreError, ResponseParserError, KeyError) as error:
        return {"broken": f"{type(error).__name__}: {error}"}
    result.pop("ResponseMetadata")
    return {"result": result}


def say(content: dict[str, Any]) -> None:
    print(json.dumps(content, default=without_bytes), flush=True)


def main() -> None:
    """Answer until the input ends."""
    attempts = int(os.environ.get("CONFORMANCE_ATTEMPTS", "1"))
    config = Config(
        retries={"max_attempts": attempts - 1, "mode": "standard"},
        read_timeout=40,
        parameter_validation=False,
    )
    services = ("sqs", "sns", "scheduler", "sts")
    clients = {name: boto3.client(name, config=config) for name in services}
    metadata = clients["sqs"].meta.service_model.metadata
    hello = {"client": f"boto3 {boto3.__version__}", "protocol": metadata["protocol"]}
    say({**hello, "retries": True})
    for line in sys.stdin:
        say(answer(clients, line))


if __name__ == "__main__":
    main()
