"""`python -m conformance.sns_validator`: are our signatures good for the npm package of that name?

A gateway delivers messages to a web hook and to a queue; the package looks at them with nothing
changed but the host that it takes certificates from, and also with nothing changed at all, behind
what a private DNS does.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3  # type: ignore[import-untyped]
from botocore.config import Config  # type: ignore[import-untyped]

from conformance import node
from conformance.driving import Different
from conformance.serving import DidNotStart, gateway
from conformance.sns_validator.certificates import Proxy, https_proxy, write_certificates
from conformance.web_hooks import listening, visit
from queuegate.protocol import sns_envelopes

HERE = Path(__file__).resolve().parent
AWS_HOST = "sns.us-east-1.amazonaws.com"
_ANSWER_SECONDS = 60

_GOOD = None
_TAMPERED = "The message signature is invalid."
_FOREIGN = "The certificate is located on an invalid domain."


@dataclass(frozen=True)
class Check:
    """A message, the hosts to take its certificate from (None: the package's own), and what the
    package has to say: None is that all is well."""

    name: str
    body: str
    hosts: str | None
    expected: str | None


def messages(endpoint: str) -> Iterator[tuple[str, str]]:
    """(name, body) of a message of each kind, under both signature versions."""
    options: dict[str, Any] = {
        "endpoint_url": endpoint,
        "region_name": "us-east-1",
        "aws_access_key_id": "123456789012",
        "aws_secret_access_key": "any",
        "config": Config(retries={"max_attempts": 1}),
    }
    sns, sqs = boto3.client("sns", **options), boto3.client("sqs", **options)
    for version in sns_envelopes.VERSIONS:
        topic = sns.create_topic(Name=f"signed-{version}")["TopicArn"]
        sns.set_topic_attributes(
            TopicArn=topic, AttributeName="SignatureVersion", AttributeValue=version
        )
        url = sqs.create_queue(QueueName=f"signed-{version}")["QueueUrl"]
        attributes = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])
        queue = attributes["Attributes"]["QueueArn"]
        sns.subscribe(TopicArn=topic, Protocol="sqs", Endpoint=queue)
        with listening() as hook:
            sns.subscribe(TopicArn=topic, Protocol="http", Endpoint=hook.url)
            confirmation = hook.next("SubscriptionConfirmation")
            yield f"SubscriptionConfirmation, version {version}", confirmation.body
            visit(confirmation.message["SubscribeURL"])
            for subject in ("Zażółć", None):
                _publish(sns, topic, subject)
                notification = hook.next("Notification")
                what = "with" if subject else "without"
                yield f"Notification {what} subject, version {version}", notification.body
            visit(notification.message["UnsubscribeURL"])
            farewell = hook.next("UnsubscribeConfirmation").body
            yield f"UnsubscribeConfirmation, version {version}", farewell
        found = sqs.receive_message(QueueUrl=url, WaitTimeSeconds=20)["Messages"]
        yield f"Notification in a queue, version {version}", found[0]["Body"]


def _publish(sns: Any, topic: str, subject: str | None) -> None:
    members: dict[str, Any] = {"Subject": subject} if subject else {}
    attribute = {"DataType": "String", "StringValue": "not covered by signatures"}
    text = 'zażółć <&> "quoted" \\ \n\t 😀'
    sns.publish(TopicArn=topic, Message=text, MessageAttributes={"a": attribute}, **members)


def checks(name: str, body: str, hosts: str | None) -> Iterator[Check]:
    """Yield the checks of one message."""
    message = json.loads(body)
    if message["Type"] == "UnsubscribeConfirmation":
        # The package leaves Token out of what it checks, though AWS signs it: it takes none of them
        # from AWS either. So the signature is checked by ours.
        yield Check(name, body, hosts, _TAMPERED)
        return
    yield Check(name, body, hosts, _GOOD)
    for member in ("Message", "TopicArn", "Timestamp"):
        changed = json.dumps(message | {member: message[member] + "x"})
        yield Check(f"{name}, {member} changed", changed, hosts, _TAMPERED)
    other = {"1": "2", "2": "1"}[message["SignatureVersion"]]
    changed = json.dumps(message | {"SignatureVersion": other})
    yield Check(f"{name}, said to be version {other}", changed, hosts, _TAMPERED)
    if hosts is not None:
        yield Check(f"{name}, from a host that is not AWS's", body, None, _FOREIGN)


def verdicts(wanted: list[Check], proxy: Proxy, authority: Path) -> list[str | None]:
    """Return the package's verdict on each check."""
    lines = [json.dumps({"body": check.body, "hosts": check.hosts}) + "\n" for check in wanted]
    program = shutil.which("node")
    assert program is not None
    done = subprocess.run(
        [program, str(HERE / "validate.js")],
        input="".join(lines),
        env={
            **os.environ,
            "NODE_PATH": str(node.packages(HERE)),
            "NODE_EXTRA_CA_CERTS": str(authority),
            "PRIVATE_DNS": f"{AWS_HOST}:{proxy.port}",
        },
        stdout=subprocess.PIPE,
        text=True,
        timeout=_ANSWER_SECONDS,
        check=True,
    )
    return [json.loads(line)["error"] for line in done.stdout.splitlines()]


def run(base: str, hosts: str | None, proxy: Proxy, authority: Path) -> int:
    """All messages of a gateway that names this base; how many verdicts were wrong."""
    print(f"\ncertificates at {base}, hosts of the validator: {hosts or 'its own'}")
    with gateway(os.environ, QUEUEGATE_SIGNING_CERT_URL_BASE=base) as endpoint:
        proxy.target = endpoint
        found = list(messages(endpoint))
        wanted = [check for name, body in found for check in checks(name, body, hosts)]
        given = verdicts(wanted, proxy, authority)
        certificate = visit(endpoint + "/SimpleNotificationService.pem")
    wrong = 0
    for check, verdict in zip(wanted, given, strict=True):
        right = verdict == check.expected
        wrong += not right
        said = "accepted" if verdict is None else f"rejected: {verdict}"
        print(f"{'ok  ' if right else 'WRONG'} {check.name}: {said}")
    for name, body in found:
        if not sns_envelopes.verify(certificate, json.loads(body)):
            wrong += 1
            print(f"WRONG {name}: the signature is not right")
    return wrong


def main() -> int:
    """0 when the package accepts what it should, rejects what it should, or cannot be had."""
    npm = shutil.which("npm")
    if npm is None or shutil.which("node") is None:
        print("sns-validator: skipped: there is no node, or no npm, on the PATH")
        return 0
    try:
        node.install(npm, HERE)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        print(f"sns-validator: could not be installed: {error}", file=sys.stderr)
        return 1
    try:
        with contextlib.ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            authority, server_file = write_certificates(folder, ["localhost", AWS_HOST])
            proxy = stack.enter_context(https_proxy(server_file))
            local = f"localhost:{proxy.port}"
            wrong = run(f"https://{local}", f"^{local}$", proxy, authority)
            wrong += run(f"https://{AWS_HOST}", None, proxy, authority)
    except (DidNotStart, Different) as error:
        print(f"sns-validator: {error}", file=sys.stderr)
        return 1
    print(
        "\nsns-validator 0.3.5 rejects every UnsubscribeConfirmation, AWS's own ones too: it does "
        "not look at the Token, which is signed."
    )
    print(f"sns-validator: {wrong} wrong" if wrong else "sns-validator: all as it should be")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
