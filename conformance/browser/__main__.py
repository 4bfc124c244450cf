"""`python -m conformance.browser`: what web pages can do with a gateway, in a real browser.

A page of a configured origin works with the AWS SDK for JavaScript; a page of another one reads
nothing and changes nothing; the gateway's own page is shown without a complaint. Pages to which
messages are pushed go offline and resume, for which no SDK is needed. The console is visited view
by view, and its buttons are used.
"""

from __future__ import annotations

import argparse
import os
import queue
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import boto3  # type: ignore[import-untyped]
from botocore.config import Config  # type: ignore[import-untyped]

from conformance import node
from conformance.browser import chromium
from conformance.browser.cable import laid
from conformance.browser.console import visit_console
from conformance.browser.site import Site, serving
from conformance.serving import DidNotStart, gateway

HERE = Path(__file__).resolve().parent
_PATIENCE_SECONDS = 60
_BUNDLE_SECONDS = 60


def bundle() -> bytes:
    """The script of the page with the SDK in it; CalledProcessError."""
    packages = node.packages(HERE)
    command = [str(packages / ".bin" / "esbuild"), str(HERE / "page.js")]
    command += ["--bundle", "--format=esm", "--platform=browser", "--log-level=warning"]
    environ = os.environ | {"NODE_PATH": str(packages)}
    done = subprocess.run(
        command, env=environ, stdout=subprocess.PIPE, check=True, timeout=_BUNDLE_SECONDS
    )
    return done.stdout


def say(outcomes: dict[str, str], who: str) -> int:
    """Print how checks went; how many went wrong."""
    for name, fault in outcomes.items():
        print(f"WRONG {who} {name}: {fault}" if fault else f"ok   {who} {name}")
    return sum(map(bool, outcomes.values()))


def visit(program: str, site: Site, **members: str) -> dict[str, str]:
    """Open the page of a site and return the outcomes that the page reports."""
    with chromium.showing(program, site.url(**members)):
        try:
            return site.told.get(timeout=_PATIENCE_SECONDS)
        except queue.Empty:
            return {"tells how it went": f"it did not in {_PATIENCE_SECONDS} s"}


def strangers_queue(program: str, stranger: Site, endpoint: str) -> dict[str, str]:
    """Open a page whose origin is not allowed; return its outcomes and the messages it sent."""
    sqs: Any = boto3.client(
        "sqs",
        endpoint_url=endpoint,
        region_name="us-east-1",
        aws_access_key_id="123456789012",
        aws_secret_access_key="any",
        config=Config(retries={"max_attempts": 1}),
    )
    url = sqs.create_queue(QueueName="target")["QueueUrl"]
    outcomes = visit(program, stranger, endpoint=endpoint, queue=url)
    found = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10).get("Messages", [])
    bodies = ", ".join(message["Body"] for message in found)
    return outcomes | {"leaves nothing behind": bodies and f"messages were sent: {bodies}"}


def push(program: str, script: bytes) -> int:
    """Check push in pages, with a pause offline; return the number of failures."""
    with serving(script) as listed, serving(script) as stranger:
        settings = {"QUEUEGATE_ALLOWED_ORIGINS": listed.origin}
        with gateway(os.environ, **settings) as endpoint, laid(endpoint) as cable:
            listed.cable = cable
            wrong = say(visit(program, listed, endpoint=cable.url, gateway=endpoint), "push:")
            return wrong + say(visit(program, stranger, endpoint=endpoint), "push to a stranger:")


def front_page(program: str, endpoint: str, picture: Path | None) -> dict[str, str]:
    """Check the gateway's own page in the browser."""
    page, complaints = chromium.rendered(program, endpoint, picture)
    return {
        "shows the endpoint": "" if f'<pre id="endpoint">{endpoint}</pre>' in page else page,
        "has nothing that is refused": "; ".join(complaints),
    }


def run(program: str, script: bytes, picture: Path | None) -> int:
    """All checks; how many went wrong."""
    with serving(script) as listed, serving(script) as stranger:
        settings = {"QUEUEGATE_ALLOWED_ORIGINS": listed.origin, "QUEUEGATE_AUTH": "none"}
        with gateway(os.environ, **settings) as endpoint:
            wrong = say(visit(program, listed, endpoint=endpoint), "a listed page")
            wrong += say(strangers_queue(program, stranger, endpoint), "a stranger's page")
            return wrong + say(front_page(program, endpoint, picture), "the front page")


def main() -> int:
    """0 when pages can do what they may and nothing else, or there is no browser to ask."""
    parser = argparse.ArgumentParser(prog="python -m conformance.browser")
    parser.add_argument("--screenshot", type=Path, help="where to put a picture of the front page")
    parser.add_argument("--pictures", type=Path, help="a folder for pictures of the console")
    parser.add_argument("--console", action="store_true", help="check the console alone")
    wanted = parser.parse_args()
    npm, program = shutil.which("npm"), chromium.find()
    if program is None:
        print("make browser-check: skipped: there is no Chromium on the PATH")
        return 0
    try:
        wrong = 0 if wanted.console else push(program, (HERE / "push.js").read_bytes())
        if npm is None or shutil.which("node") is None:
            print("make browser-check: no SDK: there is no node, or no npm, on the PATH")
        else:
            node.install(npm, HERE)
            wrong += say(visit_console(program, wanted.pictures), "the console")
            if not wanted.console:
                wrong += run(program, bundle(), wanted.screenshot)
    except (subprocess.SubprocessError, DidNotStart) as error:
        print(f"browser-check: {error}", file=sys.stderr)
        return 1
    print(f"browser-check: {wrong} wrong" if wrong else "browser-check: all as it should be")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
