"""URLs that botocore signs, asked for with curl: for as long as they say, and as they are."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator

from botocore.auth import SigV4QueryAuth  # type: ignore[import-untyped]
from botocore.awsrequest import AWSRequest  # type: ignore[import-untyped]
from botocore.credentials import Credentials  # type: ignore[import-untyped]

from conformance.serving import Endpoint

_SECONDS = 60


def run(endpoint: Endpoint) -> int:
    """Print each wrong answer and return their number."""
    curl = shutil.which("curl")
    if curl is None:
        print("curl           skipped: there is no curl on the PATH")
        return 0
    wrong = 0
    for name, expected, command in _requests(endpoint):
        told = _answer([curl, *command])
        fault = "" if expected in told else f"FAILED: {told} instead of {expected}"
        print(f"curl           {name:52} {fault or 'ok'}")
        wrong += bool(fault)
    return wrong


def _answer(command: list[str]) -> str:
    more = ["--silent", "--show-error", "--max-time", str(_SECONDS), "--write-out", " %{http_code}"]
    return subprocess.run([*command, *more], capture_output=True, text=True, check=False).stdout


def _requests(endpoint: Endpoint) -> Iterator[tuple[str, str, list[str]]]:
    key = Credentials(*endpoint.account())
    url = endpoint.url

    def signed(method: str, target: str, service: str, seconds: int = 60) -> str:
        request = AWSRequest(method, url + target)
        SigV4QueryAuth(key, service, "us-east-1", expires=seconds).add_auth(request)
        found: str = request.prepare().url
        return found

    asked = {
        "sqs": ("/?Action=CreateQueue&QueueName=of-a%20url", "InvalidParameterValue"),
        "sns": ("/?Action=CreateTopic&Name=of-a-url", "of-a-url</TopicArn>"),
        "scheduler": ("/schedules?MaxResults=5", '{"Schedules":[]'),
        "sts": ("/?Version=2011-06-15&Action=GetCallerIdentity", "</Account>"),
    }
    for service, (target, expected) in asked.items():
        yield f"GET of {service}", expected, [signed("GET", target, service)]
    for name, target in (("CreateQueue", "QueueName=a"), ("ListQueues", "QueueNamePrefix=a")):
        url_of_it = signed("POST", f"/?Action={name}&{target}", "sqs")
        yield f"POST of sqs, {name}", "/a</QueueUrl>", ["--request", "POST", url_of_it]
    get, post = signed("GET", asked["sts"][0], "sts"), ["--request", "POST"]
    yield "POST of a GET", "SignatureDoesNotMatch", [*post, get]
    yield "another query", "SignatureDoesNotMatch", [f"{get}&A=b"]
    yield (
        "with a body",
        "SignatureDoesNotMatch",
        [*post, "--data", "A=b", signed("POST", "/", "sts")],
    )
    yield "an unsigned header", "</Account>", ["--header", "X-Mine: 1", get]
    for service in ("sts", "sqs"):
        late = signed("GET", asked[service][0], service, seconds=604_801)
        yield f"for more than a week, of {service}", "IncompleteSignature", [late]
