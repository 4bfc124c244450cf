"""Drives the aws command of this environment, one process a call (clients/README.md).

The processes are forked from this one, which has imported the command: a call that imports it again
takes 1.3 s of CPU time in place of 0.2.
"""

from __future__ import annotations

import base64
import json
import multiprocessing
import os
import re
import sys
import tempfile
from typing import Any

# The command brings a botocore of its own; it is in no environment but its own.
from awscli import (  # type: ignore[import-not-found]
    clidriver,
    handlers,  # noqa: F401 - imports what a command's start imports
)
from awscli.botocore import xform_name  # type: ignore[import-not-found]

REFUSED = re.compile(r"An error occurred \((\S+)\) when calling the \w+ operation: (.*)", re.DOTALL)

FORK = multiprocessing.get_context("fork")

# Members that the command calls otherwise, because it has an option of that name itself.
RENAMED = {("Subscribe", "Endpoint"): "NotificationEndpoint"}


def option(name: str, value: Any) -> str:
    """A member as one option; a boolean one has no value but a name for either."""
    flag = xform_name(name, "-")
    if isinstance(value, bool):
        return f"--{flag}" if value else f"--no-{flag}"
    return f"--{flag}={value if isinstance(value, str) else json.dumps(plain(value))}"


def plain(value: Any) -> Any:
    """Bytes are plain text on this command line, and base64 in what it prints."""
    if isinstance(value, dict):
        if value.keys() == {"$base64"}:
            return base64.b64decode(value["$base64"]).decode()
        return {key: plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, list) else value


def marked(value: Any) -> Any:
    """Return the printed value with its bytes marked."""
    if isinstance(value, dict):
        return {
            key: {"$base64": item} if key == "BinaryValue" else marked(item)
            for key, item in value.items()
        }
    return [marked(item) for item in value] if isinstance(value, list) else value


def aws(*arguments: str) -> tuple[int, str, str]:
    """Run the command. Return its exit code, and what it wrote to stdout and stderr."""
    with tempfile.TemporaryFile("w+") as printed, tempfile.TemporaryFile("w+") as complaints:

        def run() -> None:
            os.dup2(printed.fileno(), 1)
            os.dup2(complaints.fileno(), 2)
            sys.argv = ["aws", *arguments]
            sys.exit(clidriver.main())

        process = FORK.Process(target=run)
        process.start()
        process.join()
        printed.seek(0)
        complaints.seek(0)
        return process.exitcode or 0, printed.read(), complaints.read()


def answer(line: str) -> dict[str, Any]:
    """Do what a line asks for."""
    asked = json.loads(line)
    service, action, members = asked["service"], asked["action"], asked["members"]
    # Not left to AWS_ENDPOINT_URL: for SQS this command overrides it with a host name of AWS's.
    endpoint = os.environ["AWS_ENDPOINT_URL"]
    command = ["--endpoint-url", endpoint, "--output", "json"]
    command += [service, xform_name(action, "-")]
    if "MaxResults" in members:
        command.append("--no-paginate")
    command += [option(RENAMED.get((action, name), name), value) for name, value in members.items()]
    code, printed, complaints = aws(*command)
    if code == 0:
        return {"result": marked(json.loads(printed)) if printed.strip() else {}}
    refused = REFUSED.search(complaints)
    if refused is None:
        return {"broken": complaints.strip() or f"exit code {code}"}
    name, text = refused[1], refused[2].rstrip("\n")
    return {"refused": {"code": name, "text": text, "status": None, "exception": None}}


def main() -> None:
    """Answer until the input ends."""
    os.environ["AWS_MAX_ATTEMPTS"] = "1"
    os.environ["AWS_PAGER"] = ""
    name = aws("--version")[1].split(" ")[0].replace("/", " ")
    print(json.dumps({"client": name, "protocol": "json"}), flush=True)
    for line in sys.stdin:
        print(json.dumps(answer(line)), flush=True)


if __name__ == "__main__":
    main()
