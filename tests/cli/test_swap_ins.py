"""`queuegate serve --like`: what the tools of LocalStack, ElasticMQ and moto look for."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import boto3  # type: ignore[import-untyped]
import pytest

from queuegate.gateway.configuration.settings import BadSetting, Settings
from queuegate.gateway.configuration.swap_ins import missing_services
from tests.cli.processes import Gateway, environment
from tests.faces.connections import fetch

_ENTRYPOINT = Path(__file__).parents[2] / "deploy" / "docker-entrypoint.sh"
_CREATE = """\
import os, urllib.request
form = b"Action=CreateQueue&QueueName=from-a-script"
urllib.request.urlopen(os.environ["AWS_ENDPOINT_URL"], form).read()
"""
_ACCOUNT = "000000000000"


def read_until(gateway: Gateway, line: str) -> None:
    """Read what the gateway prints up to a line that is exactly this."""
    assert gateway.process.stdout is not None
    printed = gateway.process.stdout.readline()
    while printed != f"{line}\n":
        assert printed, f"the gateway ended and did not print {line}"
        printed = gateway.process.stdout.readline()


def script(directory: Path, stage: str, name: str, text: str) -> Path:
    place = directory / f"{stage}.d" / name
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(text)
    return place


@pytest.fixture(scope="module")
def localstack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """A gateway in place of LocalStack, with scripts; two of the second stage fail."""
    directory = tmp_path_factory.mktemp("init")
    script(directory, "boot", "first.sh", "exit 0")
    script(directory, "start", "1-fails.sh", "echo no; exit 3")
    script(directory, "start", "2-runs.sh", "exit 0")
    script(directory, "start", "0/last.sh", "exit 0")
    script(directory, "start", "3-no-such-program.sh", "#!/no/such/program\n").chmod(0o755)
    script(directory, "ready", "1-create.py", _CREATE)
    script(
        directory, "ready", "2-endpoint.sh", 'test -n "$AWS_ENDPOINT_URL" && command -v awslocal'
    )
    more = {"QUEUEGATE_INIT_DIR": str(directory), "QUEUEGATE_LOG_LEVEL": "error"}
    with Gateway("--like", "localstack", **more) as gateway:
        read_until(gateway, "Ready.")
        yield gateway


def client(gateway: Gateway, service: str, path: str = "", account: str = "test") -> Any:
    return boto3.client(
        service,
        endpoint_url=gateway.url + path,
        region_name="us-east-1",
        aws_access_key_id=account,
        aws_secret_access_key="any",
    )


def page(gateway: Gateway, path: str, method: str = "GET", body: bytes = b"") -> Any:
    answer = fetch(gateway.url, path, method, body)
    assert answer.status == 200, answer.text
    return json.loads(answer.body)


def test_health_and_info_have_their_forms(localstack: Gateway) -> None:
    health = page(localstack, "/_localstack/health")
    assert health["services"] == dict.fromkeys(("scheduler", "sns", "sqs", "sts"), "running")
    assert health.keys() == {"services", "edition", "version"}
    assert page(localstack, "/_localstack/info")["edition"] == "community"


def test_scripts_run_in_order_whether_or_not_one_fails(localstack: Gateway) -> None:
    shown = page(localstack, "/_localstack/init")
    assert shown["completed"] == {"BOOT": True, "START": True, "READY": True, "SHUTDOWN": False}
    states = [(one["stage"], one["name"], one["state"]) for one in shown["scripts"]]
    assert states == [
        ("BOOT", "first.sh", "SUCCESSFUL"),
        ("START", "1-fails.sh", "ERROR"),
        ("START", "2-runs.sh", "SUCCESSFUL"),
        ("START", "3-no-such-program.sh", "ERROR"),
        ("START", "last.sh", "SUCCESSFUL"),
        ("READY", "1-create.py", "SUCCESSFUL"),
        ("READY", "2-endpoint.sh", "SUCCESSFUL"),
    ]
    assert page(localstack, "/_localstack/init/ready")["completed"] is True
    assert fetch(localstack.url, "/_localstack/init/soon").status == 400


def test_what_a_script_made_is_there_when_the_line_is_printed(localstack: Gateway) -> None:
    urls = client(localstack, "sqs").list_queues(QueueNamePrefix="from-")["QueueUrls"]
    assert [url.rpartition("/")[2] for url in urls] == ["from-a-script"]


def test_messages_of_a_queue_are_shown_and_not_received(localstack: Gateway) -> None:
    sqs = client(localstack, "sqs")
    url = sqs.create_queue(QueueName="shown")["QueueUrl"]
    attributes = {"kind": {"DataType": "String", "StringValue": "new"}}
    sqs.send_message(QueueUrl=url, MessageBody="taken")
    assert len(sqs.receive_message(QueueUrl=url)["Messages"]) == 1
    sqs.send_message(QueueUrl=url, MessageBody="later", DelaySeconds=900)
    sqs.send_message(QueueUrl=url, MessageBody="<&>", MessageAttributes=attributes)

    developer = client(localstack, "sqs", "/_aws/sqs/messages")
    [seen] = developer.receive_message(QueueUrl=url)["Messages"]
    assert (seen["Body"], seen["ReceiptHandle"]) == ("<&>", "SQS/BACKDOOR/ACCESS")
    assert seen["MessageAttributes"]["kind"]["StringValue"] == "new"
    assert seen["Attributes"]["ApproximateReceiveCount"] == "0"
    query = urlencode({"QueueUrl": url})
    for path in (f"?{query}", f"/us-east-1/{_ACCOUNT}/shown"):
        answer = fetch(localstack.url, f"/_aws/sqs/messages{path}")
        assert "<Body>&lt;&amp;&gt;</Body>" in answer.text
        assert answer.text.count("<Message>") == 1
    everything = f"/_aws/sqs/messages?{query}&ShowInvisible=true&ShowDelayed=true"
    answer = fetch(localstack.url, everything, Accept="application/json")
    messages = json.loads(answer.body)["ReceiveMessageResponse"]["ReceiveMessageResult"]["Message"]
    flags = {
        one["Body"]: {pair["Name"]: pair["Value"] for pair in one["Attribute"]} for one in messages
    }
    assert {body: (one["IsVisible"], one["IsDelayed"]) for body, one in flags.items()} == {
        "taken": ("false", "false"),
        "later": ("false", "true"),
        "<&>": ("true", "false"),
    }
    assert fetch(localstack.url, f"/_aws/sqs/messages?{query}", "DELETE").status == 200
    assert "Messages" not in developer.receive_message(QueueUrl=url)


@pytest.mark.parametrize(
    ("path", "status", "text"),
    [
        ("/_aws/sqs/messages", 400, "NonExistentQueue"),
        ("/_aws/sqs/messages/us-east-1/000000000000/none", 400, "NonExistentQueue"),
        ("/_aws/sqs/messages/none", 400, "/_aws/sqs/messages/<region>/<account>/<queue>"),
        ("/_aws/sqs/messages?QueueUrl=%ff", 400, "UTF-8"),
        ("/_aws/sns/sms-messages?accountId=1", 400, "12 digits"),
        ("/_aws/sns/subscription-tokens/none", 400, "Subscription"),
        ("/_localstack/none", 404, "no page"),
        ("/_localstack/init/%00", 400, "no stage"),
    ],
)
def test_a_wrong_page_says_what_is_right(
    localstack: Gateway, path: str, status: int, text: str
) -> None:
    answer = fetch(localstack.url, path)
    assert (answer.status, text in answer.text) == (status, True), answer.text


def test_messages_that_leave_are_shown(localstack: Gateway) -> None:
    account = "333344445555"
    sns = client(localstack, "sns", account=account)
    sns.publish(PhoneNumber="+15550100", Message="to a phone")
    application = sns.create_platform_application(
        Name="app", Platform="GCM", Attributes={"PlatformCredential": "key"}
    )["PlatformApplicationArn"]
    endpoint = sns.create_platform_endpoint(PlatformApplicationArn=application, Token="token")
    arn = endpoint["EndpointArn"]
    sns.publish(TargetArn=arn, Message="to an app", Subject="news")
    texts = page(localstack, f"/_aws/sns/sms-messages?accountId={account}")
    [text] = texts["sms_messages"]["+15550100"]
    assert (text["Message"], texts["region"]) == ("to a phone", "us-east-1")
    path = f"/_aws/sns/platform-endpoint-messages?accountId={account}&endpointArn={arn}"
    [push] = page(localstack, path)["platform_endpoint_messages"][arn]
    assert (push["Message"], push["Subject"], push["TargetArn"]) == ("to an app", "news", arn)
    assert fetch(localstack.url, path, "DELETE").status == 204
    assert page(localstack, path)["platform_endpoint_messages"] == {arn: []}


def test_a_pending_subscription_is_confirmed_by_its_token(localstack: Gateway) -> None:
    sns = client(localstack, "sns")
    topic = sns.create_topic(Name="pending")["TopicArn"]
    arn = sns.subscribe(
        TopicArn=topic, Protocol="email", Endpoint="a@example.com", ReturnSubscriptionArn=True
    )["SubscriptionArn"]
    shown = page(localstack, f"/_aws/sns/subscription-tokens/{arn}")
    token = shown["subscription_token"]
    assert sns.confirm_subscription(TopicArn=topic, Token=token)["SubscriptionArn"] == arn
    assert fetch(localstack.url, f"/_aws/sns/subscription-tokens/{arn}").status == 400


def test_a_phone_opts_out(localstack: Gateway) -> None:
    body = b'{"phoneNumber": "+15550199", "accountId": "333344445556"}'
    page(localstack, "/_aws/sns/phone-opt-outs", "POST", body)
    sns = client(localstack, "sns", account="333344445556")
    assert sns.list_phone_numbers_opted_out()["phoneNumbers"] == ["+15550199"]
    for wrong in (b"", b"[]", b'{"phoneNumber": 7}', b'{"phoneNumber": "no"}'):
        assert fetch(localstack.url, "/_aws/sns/phone-opt-outs", "POST", wrong).status == 400


def test_chaos_makes_requests_fail_in_the_form_of_localstack(localstack: Gateway) -> None:
    faults, effects = "/_localstack/chaos/faults", "/_localstack/chaos/effects"

    def chaos(method: str, path: str, content: Any) -> Any:
        return page(localstack, path, method, json.dumps(content).encode())

    sqs = client(localstack, "sqs", account="333344445559")
    error = {"statusCode": 500, "code": "InternalError"}
    lists = {"service": "sqs", "operation": "ListQueues", "probability": 1.0, "error": error}
    other = {"region": "eu-west-1", "probability": 0.5, "error": {**error, "code": "Other"}}
    assert chaos("POST", faults, [{"service": "sns"}]) == [
        {
            "service": "sns",
            "probability": 1.0,
            "error": {"statusCode": 503, "code": "ServiceUnavailable"},
        }
    ]
    assert chaos("POST", faults, [lists]) == [lists]
    assert chaos("PATCH", faults, [other]) == page(localstack, faults) == [lists, other]
    with pytest.raises(sqs.exceptions.ClientError, match="InternalError") as thrown:
        sqs.list_queues()
    assert thrown.value.response["ResponseMetadata"]["HTTPStatusCode"] == 500
    assert chaos("DELETE", faults, [lists]) == [other]
    sqs.list_queues()
    assert chaos("PUT", effects, {"latency": 300}) == page(localstack, effects) == {"latency": 300}
    began = time.monotonic()
    sqs.list_queues()
    assert time.monotonic() - began >= 0.3
    for method, path, wrong in (
        ("POST", faults, 7),
        ("POST", faults, ["x"]),
        ("POST", faults, [{"probability": 2}]),
        ("POST", faults, [{"service": "s3"}]),
        ("POST", faults, [{"error": {"statusCode": "500"}}]),
        ("PATCH", faults, [{"count": 0}]),
        ("POST", effects, {"latency": -1}),
        ("POST", effects, {"latency": True}),
        ("POST", effects, []),
    ):
        answer = fetch(localstack.url, path, method, json.dumps(wrong).encode())
        assert (answer.status, "error" in json.loads(answer.body)) == (400, True), wrong
    assert page(localstack, faults) == [other]
    assert page(localstack, faults, "DELETE") == []
    assert chaos("POST", effects, {"latency": 0}) == {"latency": 0}


def test_a_reset_of_an_account_leaves_the_others(localstack: Gateway) -> None:
    accounts = ("333344445557", "333344445558")
    for account in accounts:
        sqs, sns = (client(localstack, name, account=account) for name in ("sqs", "sns"))
        scheduler = client(localstack, "scheduler", account=account)
        url = sqs.create_queue(QueueName="orders")["QueueUrl"]
        sqs.send_message(QueueUrl=url, MessageBody="one")
        topic = sns.create_topic(Name="news")["TopicArn"]
        sns.subscribe(TopicArn=topic, Protocol="sqs", Endpoint=f"arn:aws:sqs:us-east-1:{account}:o")
        sns.publish(PhoneNumber="+15550100", Message="to a phone")
        scheduler.create_schedule_group(Name="night")
        scheduler.create_schedule(
            Name="nightly",
            ScheduleExpression="rate(1 day)",
            FlexibleTimeWindow={"Mode": "OFF"},
            Target={
                "Arn": f"arn:aws:sqs:us-east-1:{account}:orders",
                "RoleArn": f"arn:aws:iam::{account}:role/r",
            },
        )
    body = json.dumps({"account": accounts[0]}).encode()
    assert page(localstack, "/_admin/reset", "POST", body) == {"status": "ok"}
    found = []
    for account in accounts:
        sqs, sns = (client(localstack, name, account=account) for name in ("sqs", "sns"))
        scheduler = client(localstack, "scheduler", account=account)
        found.append(
            [
                len(sqs.list_queues().get("QueueUrls", ())),
                len(sns.list_topics()["Topics"]),
                len(sns.list_subscriptions()["Subscriptions"]),
                len(scheduler.list_schedules()["Schedules"]),
                len(scheduler.list_schedule_groups(NamePrefix="n")["ScheduleGroups"]),
                len(
                    page(localstack, f"/_aws/sns/sms-messages?accountId={account}")["sms_messages"]
                ),
            ]
        )
    assert found == [[0] * 6, [1] * 6]
    sqs = client(localstack, "sqs", account=accounts[0])
    url = sqs.create_queue(QueueName="orders")["QueueUrl"]
    assert "Messages" not in sqs.receive_message(QueueUrl=url)


@pytest.mark.parametrize(
    "body",
    [b"x", b"[]", b'{"account": "1"}', b'{"account": 7}', b'{"a": 1}', b'{"account": "\xff"}'],
)
def test_a_wrong_reset_changes_nothing(localstack: Gateway, body: bytes) -> None:
    answer = fetch(localstack.url, "/_admin/reset", "POST", body)
    assert (answer.status, '{"error":"The ' in answer.text) == (400, True)


def test_data_that_is_kept_is_not_reset(data: Path) -> None:
    with Gateway("--data", str(data)) as gateway:
        answer = fetch(gateway.url, "/_admin/reset", "POST")
        assert (answer.status, "--ephemeral" in answer.text) == (403, True)
        assert fetch(gateway.url, "/_localstack/health").status != 200


def test_moto_resets_everything() -> None:
    with Gateway("--like", "moto", QUEUEGATE_LOG_LEVEL="error") as gateway:
        read_until(gateway, " * Running on http://127.0.0.1:5000")
        sqs = client(gateway, "sqs")
        assert "/123456789012/" in sqs.create_queue(QueueName="orders")["QueueUrl"]
        assert page(gateway, "/moto-api/data.json")["sqs"] == {"Queue": [{"name": "orders"}]}
        for path in ("/moto-api/seed?a=42", "/moto-api/reset"):
            assert page(gateway, path, "POST") == {"status": "ok"}
        assert "QueueUrls" not in sqs.list_queues()


def test_scripts_of_the_shutdown_still_find_the_gateway_of_the_entrypoint(tmp_path: Path) -> None:
    script(tmp_path, "shutdown", "last.py", f"{_CREATE}print('made')")
    more = environment(
        QUEUEGATE_LIKE="localstack", QUEUEGATE_INIT_DIR=str(tmp_path), QUEUEGATE_PORT="0"
    )
    more["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{more['PATH']}"
    with subprocess.Popen(
        [str(_ENTRYPOINT)], env=more, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None
        lines = iter(process.stdout.readline, "")
        assert "Ready.\n" in lines
        process.terminate()
        ended = "".join(lines)
    assert ("last.py: made" in ended, process.returncode) == (True, 0)


@pytest.mark.parametrize(
    ("like", "variables", "wanted"),
    [
        (
            "localstack",
            {},
            {"port": 4566, "ephemeral": True, "auth": "none", "region": "us-east-1"},
        ),
        ("localstack", {"DEFAULT_REGION": "eu-west-1"}, {"region": "eu-west-1"}),
        ("localstack", {"QUEUEGATE_REGION": "a-b-1", "DEFAULT_REGION": "x"}, {"region": "a-b-1"}),
        ("localstack", {"PERSISTENCE": "1"}, {"ephemeral": False}),
        ("localstack", {"DATABASE_URL": "postgresql://a@b/c"}, {"ephemeral": False}),
        (
            "localstack",
            {"GATEWAY_LISTEN": "0.0.0.0:4500,0.0.0.0:443", "LOCALSTACK_HOST": "stack"},
            {"hosts": ("0.0.0.0",), "port": 4500, "base_url": "http://stack:4500"},
        ),
        ("localstack", {"LOCALSTACK_HOST": "stack:1"}, {"base_url": "http://stack:1"}),
        ("localstack", {"LOCALSTACK_HOST": "127.0.0.1"}, {"base_url": None}),
        ("localstack", {"HOSTNAME_EXTERNAL": "stack"}, {"base_url": "http://stack:4566"}),
        ("elasticmq", {}, {"port": 9324, "region": "elasticmq", "account_id": _ACCOUNT}),
        ("moto", {}, {"port": 5000, "account_id": "123456789012"}),
        ("moto", {"MOTO_PORT": "5001"}, {"port": 5001}),
    ],
)
def test_each_server_has_its_defaults(
    like: str, variables: dict[str, str], wanted: dict[str, Any]
) -> None:
    settings = Settings.from_env({"QUEUEGATE_LIKE": like, **variables})
    assert {name: getattr(settings, name) for name in wanted} == wanted


@pytest.mark.parametrize(
    ("variables", "text"),
    [
        ({"QUEUEGATE_LIKE": "sqs"}, "localstack, elasticmq or moto"),
        ({"QUEUEGATE_LIKE": "moto", "QUEUEGATE_AUTH": "sigv4"}, "exclude each other"),
        ({"QUEUEGATE_LIKE": "moto", "QUEUEGATE_WORKERS": "2"}, "leave --workers out"),
        ({"QUEUEGATE_LIKE": "localstack", "GATEWAY_LISTEN": "a:b"}, "port='b'"),
    ],
)
def test_settings_that_cannot_be_are_refused(variables: dict[str, str], text: str) -> None:
    with pytest.raises(BadSetting, match=text):
        Settings.from_env(variables)


def test_services_that_are_not_here_are_named() -> None:
    services = {"SERVICES": "sqs,s3:4572, lambda"}
    assert missing_services("localstack", services) == ["lambda", "s3"]
    assert missing_services("localstack", {}) == missing_services("moto", services) == []
