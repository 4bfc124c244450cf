"""Seed files applied to a gateway by the command, and boto3 clients to look at the result."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import boto3  # type: ignore[import-untyped]

from tests.cli.calling import call
from tests.cli.processes import Gateway


def client(gateway: Gateway, service: str, account: str = "any", region: str = "us-east-1") -> Any:
    return boto3.client(
        service,
        endpoint_url=gateway.url,
        region_name=region,
        aws_access_key_id=account,
        aws_secret_access_key="x",
    )


def seed_file(folder: Path, text: str, name: str = "seed.toml") -> str:
    path = folder / name
    path.write_text(text)
    return str(path)


def apply(gateway: Gateway, *arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    done = call("apply", *arguments, "--url", gateway.url)
    assert done.returncode == code, done.stderr
    return done
