"""Seed files applied to running gateways, as boto3 sees the result."""

from __future__ import annotations

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import asyncpg

from queuegate.gateway.command.gateway_client import ask
from tests.cli.calling import call
from tests.cli.processes import Gateway, environment
from tests.faces.signing import Verifying
from tests.seed_files.applying import apply, client, seed_file
from tests.waiting import until_async

SEED = """\
[queues.orders]
visibility_timeout = 45
dead_letter_queue = "orders-dead"
max_receive_count = 3
policy.Version = "2012-10-17"
policy.Statement = [
  { Effect = "Allow", Principal = "*", Action = "sqs:SendMessage", Resource = "*" },
]
tags = { team = "shop" }
messages = ["one", { body = "two", attributes = { kind = "x", count = 3 } }]

[queues.orders-dead]
redrive_allow_policy.redrivePermission = "byQueue"
redrive_allow_policy.sourceQueueArns = ["arn:aws:sqs:us-east-1:000000000000:orders"]

[queues."billing.fifo"]
content_based_deduplication = true
messages = [{ body = "first", group_id = "g" }, { body = "second", group_id = "g" }]

[topics.events]
display_name = "Events"
tags = { team = "shop" }

[[topics.events.subscriptions]]
endpoint = "orders"
raw_message_delivery = true
filter_policy = { kind = ["order", { anything-but = ["x"] }] }
dead_letter_queue = "orders-dead"

[topics."ordered.fifo"]
[[topics."ordered.fifo".subscriptions]]
endpoint = "http://localhost/000000000000/billing.fifo"

[schedules.nightly]
group_name = "jobs"
schedule_expression = "cron(0 3 * * ? *)"
schedule_expression_timezone = "Europe/Zurich"
start_date = 2030-01-01T00:00:00Z
target = { arn = "orders", input = { run = true } }

[channels.alerts]
ack_window = 20
max_deliveries = 4
size = 100

[logs.clicks]
partitions = 4
max_age = 3600

[keys.shop]
policy.Version = "2012-10-17"
policy.Statement = [{ Effect = "Allow", Action = "sqs:*", Resource = "*" }]
secret_file = "shop.key"

[accounts."111111111111/eu-west-1".queues.other]
delay_seconds = 5
"""


def seed_of(account: str) -> str:
    """Return the file for another account, so that tests share a gateway."""
    return f'account = "{account}"\n' + SEED.replace("000000000000", account)


def bodies(sqs: Any, name: str) -> list[str]:
    url = sqs.get_queue_url(QueueName=name)["QueueUrl"]
    found = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10).get("Messages", [])
    for one in found:
        sqs.delete_message(QueueUrl=url, ReceiptHandle=one["ReceiptHandle"])
    return sorted(one["Body"] for one in found)


def test_a_gateway_has_all_that_its_file_names_when_it_is_ready(folder: Path) -> None:
    """A start of the bundled PostgreSQL takes seconds where eight run at once."""
    with Gateway("--ephemeral", "--config", seed_file(folder, SEED)) as gateway:
        sqs, sns = client(gateway, "sqs"), client(gateway, "sns")
        url = sqs.get_queue_url(QueueName="orders")["QueueUrl"]
        attributes = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
        assert attributes["VisibilityTimeout"] == "45"
        assert attributes["ApproximateNumberOfMessages"] == "2"
        assert json.loads(attributes["RedrivePolicy"])["maxReceiveCount"] == 3
        assert json.loads(attributes["Policy"])["Statement"][0]["Action"] == "sqs:SendMessage"
        assert sqs.list_queue_tags(QueueUrl=url)["Tags"] == {"team": "shop"}
        assert bodies(sqs, "billing.fifo") == ["first", "second"]
        arn = "arn:aws:sns:us-east-1:000000000000:events"
        assert sns.get_topic_attributes(TopicArn=arn)["Attributes"]["DisplayName"] == "Events"
        [one] = sns.list_subscriptions_by_topic(TopicArn=arn)["Subscriptions"]
        assert one["Endpoint"] == "arn:aws:sqs:us-east-1:000000000000:orders"
        found = client(gateway, "scheduler").get_schedule(Name="nightly", GroupName="jobs")
        assert json.loads(found["Target"]["Input"]) == {"run": True}
        other = client(gateway, "sqs", "111111111111", "eu-west-1")
        assert len(other.list_queues()["QueueUrls"]) == 1
        secret = folder / "shop.key"
        assert secret.stat().st_mode & 0o777 == 0o600
        assert secret.read_text().startswith("qg_")


def test_a_repetition_changes_nothing_and_sends_nothing(gateway: Gateway, folder: Path) -> None:
    account = "777777777777"
    file = seed_file(folder, seed_of(account))
    assert "created queue orders\n" in apply(gateway, file).stdout
    sqs = client(gateway, "sqs", account)
    url = sqs.get_queue_url(QueueName="orders")["QueueUrl"]
    assert bodies(sqs, "orders") == ["one", "two"]
    before = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
    assert apply(gateway, file).stdout == ""
    assert bodies(sqs, "orders") == []
    assert sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"] == before
    sqs.set_queue_attributes(QueueUrl=url, Attributes={"VisibilityTimeout": "7"})
    assert apply(gateway, file).stdout == "changed queue orders\n"
    sqs.tag_queue(QueueUrl=url, Tags={"team": "x", "own": "y"})
    assert apply(gateway, file).stdout == "changed queue orders\n"
    assert sqs.list_queue_tags(QueueUrl=url)["Tags"] == {"team": "shop", "own": "y"}


def test_an_export_applied_elsewhere_exports_the_same(gateway: Gateway, folder: Path) -> None:
    """Each start of the bundled PostgreSQL takes seconds where eight run at once."""
    account = "888888888888"
    apply(gateway, seed_file(folder, seed_of(account)))
    where = ("--account", account)
    exported = call("export", "--url", gateway.url, *where).stdout
    assert '[queues."billing.fifo"]\ncontent_based_deduplication = true\n' in exported
    with Gateway("--ephemeral", QUEUEGATE_LOG_LEVEL="error") as other:
        apply(other, seed_file(folder, exported, "exported.toml"))
        assert call("export", "--url", other.url, *where).stdout == exported
        assert apply(other, str(folder / "exported.toml")).stdout == ""
        # The second gateway has what the first file names.
        assert apply(other, seed_file(folder, seed_of(account).split("[accounts.")[0])).stdout == ""


def test_prune_deletes_what_the_file_does_not_name(gateway: Gateway, folder: Path) -> None:
    account = "222222222222"
    sqs, sns = (client(gateway, one, account) for one in ("sqs", "sns"))
    apply(gateway, seed_file(folder, seed_of(account)))
    few = f"""
account = "{account}"
[queues.orders]
[topics.events]
"""
    done = apply(gateway, seed_file(folder, few), "--prune")
    assert done.stdout.count("deleted") == 8, done.stdout
    others = seed_file(folder, "[accounts.232323232323.queues.other]\n", "others.toml")
    # The account of the command is not that of the file.
    done = apply(gateway, others, "--prune", "--account", account)
    assert done.stdout == "created queue other\n"
    urls = sqs.list_queues()["QueueUrls"]
    assert [url.rpartition("/")[2] for url in urls] == ["orders"]
    assert len(sns.list_topics()["Topics"]) == 1
    assert sns.list_subscriptions()["Subscriptions"] == []
    assert client(gateway, "scheduler", account).list_schedules()["Schedules"] == []
    assert len(client(gateway, "sqs", "111111111111", "eu-west-1").list_queues()["QueueUrls"]) == 1


def test_nothing_is_applied_of_a_file_with_mistakes(gateway: Gateway, folder: Path) -> None:
    file = seed_file(
        folder,
        """
account = "333333333333"
[queues.good]
[queues.bad]
dead_letter_queue = "absent"
[topics.fine]
[[topics.fine.subscriptions]]
endpoint = "good"
[schedules.s]
schedule_expression = "rate(1 days)"
start_date = 2001-01-01T00:00:00Z
target.arn = "good"
""",
    )
    done = apply(gateway, file, code=1)
    *found, last = done.stderr.splitlines()
    assert "seed.toml:11: schedules.s.start_date: " in last
    assert found == [
        f"queuegate: {file}:5: queues.bad.dead_letter_queue: Value "
        '{"deadLetterTargetArn": "arn:aws:sqs:us-east-1:333333333333:absent", '
        '"maxReceiveCount": 10} for parameter RedrivePolicy is invalid. Reason: Dead letter '
        "target does not exist"
    ]
    assert "QueueUrls" not in client(gateway, "sqs", "333333333333").list_queues()


def test_a_gateway_does_not_start_with_mistakes(folder: Path) -> None:
    file = seed_file(folder, "[queues.a]\ndelay_seconds = 901\ntag = {}\n")
    done = call("serve", "--ephemeral", "--port", "0", "--config", file)
    assert done.returncode == 1
    first, second, last = [one for one in done.stderr.splitlines() if one[0] == "q"]
    assert first == (
        f"queuegate: {file}:2: queues.a.delay_seconds: Invalid value for the parameter "
        "DelaySeconds: allowed are 0 to 900"
    )
    assert second.startswith(f"queuegate: {file}:3: queues.a.tag: is unknown: did you mean tags?")
    assert last == f"queuegate: the gateway does not start: 2 mistakes in {file}"


async def test_a_killed_start_leaves_nothing_and_two_later_ones_apply_all_once(
    folder: Path, own_database_dsn: str
) -> None:
    """Three processes on one database; each takes seconds where eight run at once."""
    names = [f"q{n}" for n in range(300)]
    text = "\n".join(
        f'[queues.{name}]\nmessages = ["{name}"]\ntags = {{ a = "b" }}' for name in names
    )
    file = seed_file(folder, text)
    process = subprocess.Popen(  # noqa: ASYNC220 - the start of a process takes milliseconds
        [sys.executable, "-m", "queuegate", "serve", "--port", "0", "--config", file],
        env=environment(QUEUEGATE_LOG_LEVEL="error", DATABASE_URL=own_database_dsn),
        stdout=subprocess.DEVNULL,
    )
    connection = await asyncpg.connect(own_database_dsn)
    # The lock of one seed at a time: held from the start of its transaction to the end.
    held = "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND classid = 20807 AND objid = 4"
    await until_async(lambda: connection.fetchval(held))
    process.kill()
    process.wait()
    assert await connection.fetchval("SELECT count(*) FROM queuegate.queues") == 0
    await connection.close()
    with ThreadPoolExecutor(2) as pool:
        starts = [
            pool.submit(Gateway, "--config", file, DATABASE_URL=own_database_dsn) for _ in range(2)
        ]
        first, second = (start.result() for start in starts)
    with first, second:
        sqs = client(first, "sqs")
        assert len(sqs.list_queues()["QueueUrls"]) == len(names)
        assert [bodies(sqs, name) for name in ("q0", "q150", "q299")] == [
            ["q0"],
            ["q150"],
            ["q299"],
        ]
        assert bodies(client(second, "sqs"), "q7") == ["q7"]


def test_several_processes_apply_the_file_once(folder: Path) -> None:
    with Gateway("--ephemeral", "--workers", "2", "--config", seed_file(folder, SEED)) as gateway:
        assert bodies(client(gateway, "sqs"), "orders") == ["one", "two"]


def test_what_cannot_be_changed_is_refused_before_anything_is(
    gateway: Gateway, folder: Path
) -> None:
    account = "999999999999"
    apply(gateway, seed_file(folder, seed_of(account)))
    text = f"""
account = "{account}"
[queues.new]
[channels.alerts]
size = 7
[logs.clicks]
partitions = 5
[keys.shop]
kind = "access"
rate_limit = {{ requests = 5 }}
secret_file = "shop.key"
"""
    done = apply(gateway, file := seed_file(folder, text), code=1)
    assert done.stderr.splitlines() == [
        f"queuegate: {file}:{text}"
        for text in (
            "5: channels.alerts.size: A queue already exists with the same name and a different "
            "value for attribute size",
            "7: logs.clicks.partitions: partitions cannot be changed: it is 4",
            "9: keys.shop.kind: kind cannot be changed: it is api",
            "10: keys.shop.rate_limit: rate_limit cannot be changed: it is None",
        )
    ]
    urls = client(gateway, "sqs", account).list_queues()["QueueUrls"]
    assert not [url for url in urls if url.endswith("/new")]


def test_a_filter_changes_its_scope_both_ways_and_no_password_is_printed(
    gateway: Gateway, folder: Path
) -> None:
    account = "121212121212"

    def file_with(filter_policy: str, scope: str) -> str:
        text = f"""
account = "{account}"
[queues.a]
[[topics.t.subscriptions]]
endpoint = "a"
filter_policy = {filter_policy}
filter_policy_scope = "{scope}"
[[topics.t.subscriptions]]
protocol = "http"
endpoint = "http://user:secret@127.0.0.1:9/hook"
"""
        return seed_file(folder, text)

    flat, nested = file_with('{ a = ["b"] }', "MessageAttributes"), '{ a = { b = ["c"] } }'
    done = apply(gateway, flat)
    assert "created subscription http://user:****@127.0.0.1:9/hook\n" in done.stdout
    sns = client(gateway, "sns", account)
    for policy, scope in ((nested, "MessageBody"), ('{ a = ["b"] }', "MessageAttributes")):
        done = apply(gateway, file_with(policy, scope))
        assert "secret" not in done.stdout + done.stderr
        found = sns.list_subscriptions()["Subscriptions"]
        [arn] = [one["SubscriptionArn"] for one in found if one["Protocol"] == "sqs"]
        attributes = sns.get_subscription_attributes(SubscriptionArn=arn)["Attributes"]
        assert attributes["FilterPolicyScope"] == scope
    exported = call("export", "--account", account, "--url", gateway.url).stdout
    assert "secret" not in exported
    copied = exported.replace(account, "171717171717")
    done = apply(gateway, seed_file(folder, copied), code=1)
    line = 1 + copied.splitlines().index('endpoint = "http://user:****@127.0.0.1:9/hook"')
    assert f":{line}: subscriptions.1.endpoint: endpoint: an export hides its" in done.stderr
    apply(gateway, seed_file(folder, copied.replace("****", "secret")))


WRITTEN_IN_ANOTHER_FORM = """
[queues.a]
dead_letter_queue = "b"
redrive_allow_policy = '{"redrivePermission":   "allowAll"}'
[queues.b]
dead_letter_queue = "a"
max_receive_count = "7"
[topics."t.fifo"]
archive_policy.MessageRetentionPeriod = 30
[topics.plain]
[topics.plain.delivery_policy.http.defaultHealthyRetryPolicy]
numRetries = 1
minDelayTarget = 1
maxDelayTarget = 2
[[topics.plain.subscriptions]]
endpoint = "b"
filter_policy = {}
[schedules.s]
schedule_expression = "rate(1 days)"
end_date = 2099-01-01T00:00:00+02:00
target = { arn = "b", retry_policy = { maximum_retry_attempts = 3 } }
[keys.k]
expires_at = 2099-01-01T00:00:00+02:00
secret_file = "k"
"""


def test_what_the_api_writes_in_another_form_is_not_changed_again(
    gateway: Gateway, folder: Path
) -> None:
    """Queues may also redrive to each other."""
    file = seed_file(folder, 'account = "131313131313"\n' + WRITTEN_IN_ANOTHER_FORM)
    made = apply(gateway, file, "--dry-run").stdout
    assert apply(gateway, file).stdout == made
    assert made.count("created") == 7
    assert apply(gateway, file).stdout == ""


ELASTICMQ = """\
include classpath("application.conf")

# The outside visible address of this node
node-address {
  protocol = http
  host = "*"
  port = 9324
  context-path = ""
}

rest-sqs {
  enabled = true
  bind-port = 9324
  bind-hostname = "0.0.0.0"
  sqs-limits = strict
}

generate-node-address = false
prefix = ${?QUEUE_NAME_PREFIX}
timeout = 10 seconds

queues {
  payments {
    defaultVisibilityTimeout = ${timeout}
    delay = 1500 ms
    receiveMessageWait = 0 seconds
    deadLettersQueue {
      name = "payments-dead"
      maxReceiveCount = 3 // from reliable messaging
    }
    fifo = false
    contentBasedDeduplication = false
    copyTo = "audit-queue-name"
    tags { tag1 = "tagged1", tag2 = "tagged2" }
  }
  payments-dead { }
  audit-log { colour = red }
  "ordered" { fifo = true, contentBasedDeduplication = true,
    deadLettersQueue = { name = "ordered-dead", maxReceiveCount = 1 } }
  ordered-dead.fifo = true
}

auto-create-queues.enabled = true
aws {
  region = us-west-2
  accountId = 000000000123
}
"""


def test_an_elasticmq_file(gateway: Gateway, folder: Path) -> None:
    file = seed_file(folder, ELASTICMQ, "elasticmq.conf")
    done = apply(gateway, file)
    assert [line.partition(": warning: ")[2] for line in done.stderr.splitlines()] == [
        f"{file}:20: timeout: is unknown and ignored",
        f"{file}:33: queues.payments.copyTo: is ignored: subscribe queues to a topic instead",
        f"{file}:37: queues.audit-log.colour: is unknown and ignored",
        f"{file}:43: auto-create-queues: is ignored: name queues here, or create them by "
        "CreateQueue",
    ]
    sqs = client(gateway, "sqs", "000000000123", "us-west-2")
    names = [url.rpartition("/")[2] for url in sqs.list_queues()["QueueUrls"]]
    assert names == ["audit-log", "ordered-dead.fifo", "ordered.fifo", "payments", "payments-dead"]
    url = sqs.get_queue_url(QueueName="payments")["QueueUrl"]
    attributes = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
    assert (attributes["VisibilityTimeout"], attributes["DelaySeconds"]) == ("10", "1")
    assert json.loads(attributes["RedrivePolicy"]) == {
        "deadLetterTargetArn": "arn:aws:sqs:us-west-2:000000000123:payments-dead",
        "maxReceiveCount": 3,
    }
    assert sqs.list_queue_tags(QueueUrl=url)["Tags"] == {"tag1": "tagged1", "tag2": "tagged2"}
    assert apply(gateway, file).stdout == ""


def test_a_gateway_in_the_place_of_elasticmq_reads_the_file_that_java_would(folder: Path) -> None:
    """The attributes are those that ElasticMQ 1.6.5 shows for this file."""
    file = seed_file(folder, "queues { q { delay = 2500, fifo = true } }", "other.conf")
    options = f"-Xmx64m -Dconfig.file={file}"
    with Gateway("--like", "elasticmq", JAVA_OPTS=options, QUEUEGATE_LOG_LEVEL="error") as gateway:
        sqs = client(gateway, "sqs", "000000000000", "elasticmq")
        url = sqs.get_queue_url(QueueName="q.fifo")["QueueUrl"]
        found = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["DelaySeconds"])
        assert found["Attributes"] == {"DelaySeconds": "2"}


TEMPLATE = """\
AWSTemplateFormatVersion: "2010-09-09"
Description: A queue behind a topic
Parameters:
  Environment:
    Type: String
    Default: test
Resources:
  OrdersQueue:
    Type: AWS::SQS::Queue
    Properties:
      QueueName: !Sub "orders-${Environment}"
      VisibilityTimeout: 300
      RedrivePolicy:
        deadLetterTargetArn: !GetAtt OrdersDeadLetters.Arn
        maxReceiveCount: 5
      Tags:
        - {Key: team, Value: shop}
  OrdersDeadLetters:
    Type: AWS::SQS::Queue
    Properties:
      QueueName: {"Fn::Join": ["-", [orders, !Ref Environment, dead]]}
      MessageRetentionPeriod: 1209600
  Events:
    Type: AWS::SNS::Topic
    Properties:
      TopicName: !Sub "${AWS::StackName}-events"
      DisplayName: Events
      Subscription:
        - Protocol: sqs
          Endpoint: !GetAtt OrdersDeadLetters.Arn
  OrdersSubscription:
    Type: AWS::SNS::Subscription
    Properties:
      TopicArn: !Ref Events
      Protocol: sqs
      Endpoint: !GetAtt OrdersQueue.Arn
      RawMessageDelivery: true
      FilterPolicy:
        kind: [order]
  OrdersPolicy:
    Type: AWS::SQS::QueuePolicy
    Properties:
      Queues: [!Ref OrdersQueue]
      PolicyDocument:
        Version: 2012-10-17
        Statement:
          - Effect: Allow
            Principal: {Service: sns.amazonaws.com}
            Action: sqs:SendMessage
            Resource: !GetAtt OrdersQueue.Arn
            Condition: {ArnEquals: {"aws:SourceArn": !Ref Events}}
  Worker:
    Type: AWS::Lambda::Function
    Properties:
      Role: !GetAtt WorkerRole.Arn
  WorkerRole:
    Type: AWS::IAM::Role
  Nightly:
    Type: AWS::Scheduler::Schedule
    Properties:
      Name: nightly
      ScheduleExpression: cron(0 3 * * ? *)
      FlexibleTimeWindow: {Mode: "OFF"}
      Target:
        Arn: !GetAtt OrdersQueue.Arn
        RoleArn: !GetAtt WorkerRole.Arn
        Input: '{"run": true}'
Outputs:
  Url: {Value: !Ref OrdersQueue}
"""


def test_a_cloudformation_template(gateway: Gateway, folder: Path) -> None:
    account = "444444444444"
    file = seed_file(folder, TEMPLATE, "template.yaml")
    done = apply(gateway, file, "--account", account)
    assert [line.partition(": warning: ")[2] for line in done.stderr.splitlines()] == [
        f"{file}:{line}: Resources.{name}: is ignored: {kind} is not a resource of SQS, SNS or "
        "Scheduler"
        for line, name, kind in (
            (52, "Worker", "AWS::Lambda::Function"),
            (56, "WorkerRole", "AWS::IAM::Role"),
        )
    ]
    sqs, sns = client(gateway, "sqs", account), client(gateway, "sns", account)
    url = sqs.get_queue_url(QueueName="orders-test")["QueueUrl"]
    attributes = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
    assert attributes["VisibilityTimeout"] == "300"
    assert json.loads(attributes["RedrivePolicy"])["deadLetterTargetArn"].endswith(
        ":orders-test-dead"
    )
    condition = json.loads(attributes["Policy"])["Statement"][0]["Condition"]
    topic = f"arn:aws:sns:us-east-1:{account}:queuegate-events"
    assert condition == {"ArnEquals": {"aws:SourceArn": topic}}
    assert len(sns.list_subscriptions_by_topic(TopicArn=topic)["Subscriptions"]) == 2
    value = {"kind": {"DataType": "String", "StringValue": "order"}}
    sns.publish(TopicArn=topic, Message="hello", MessageAttributes=value)
    found = sqs.receive_message(QueueUrl=url, WaitTimeSeconds=5)["Messages"]
    assert [one["Body"] for one in found] == ["hello"]
    schedule = client(gateway, "scheduler", account).get_schedule(Name="nightly")
    assert schedule["Target"]["RoleArn"] == f"arn:aws:iam::{account}:role/WorkerRole"
    assert apply(gateway, file, "--account", account).stdout == ""


def test_a_key_names_the_account_of_the_file(gateway: Gateway, folder: Path) -> None:
    made = call("keys", "create", "seeds", "--account", "555555555555", "--url", gateway.url)
    key = ("--key", made.stdout.strip())
    apply(gateway, seed_file(folder, "[queues.mine]\n"), *key)
    assert len(client(gateway, "sqs", "555555555555").list_queues()["QueueUrls"]) == 1
    foreign = seed_file(folder, "[accounts.666666666666.queues.theirs]\n")
    assert apply(gateway, foreign, *key, code=1).stderr == (
        "queuegate: The key is of account 555555555555, and the file is about 666666666666.\n"
    )


def test_calls_are_signed_where_signatures_are_verified(tmp_path: Path) -> None:
    """A query and a name that is encoded in a path are signed, too."""
    with Verifying(tmp_path) as gateway:
        key = {
            "AWS_ACCESS_KEY_ID": gateway.first.access_key,
            "AWS_SECRET_ACCESS_KEY": gateway.first.secret,
        }
        file = seed_file(tmp_path, SEED.split("[accounts.")[0])
        done = call("apply", file, "--url", gateway.url, **key)
        assert "created schedule nightly\n" in done.stdout, done.stderr
        assert call("apply", file, "--url", gateway.url, **key).stdout == ""
        exported = call("export", "--url", gateway.url, **key).stdout
        assert "[queues.orders]" in exported
        assert "[schedules.nightly]" in exported
        wrong = key | {"AWS_SECRET_ACCESS_KEY": "wrong"}
        done = call("apply", file, "--url", gateway.url, **wrong)
        assert (done.returncode, done.stderr.count("\n")) == (1, 1)


def test_faults_on_purpose_are_for_clients_and_not_for_seeds(
    gateway: Gateway, folder: Path
) -> None:
    account = "151515151515"
    rules = f"{gateway.url}/_admin/faults"
    rule = json.dumps({"account": account, "error": "RequestThrottled"}).encode()
    assert ask("POST", rules, rule, {}).status == 200
    try:
        file = seed_file(folder, f'account = "{account}"\n[queues.a]\n[logs.b]\n')
        assert apply(gateway, file).stdout == "created queue a\ncreated log b\n"
        exported = call("export", "--account", account, "--url", gateway.url)
        assert "[queues.a]" in exported.stdout, exported.stderr
    finally:
        assert ask("DELETE", rules, b"", {}).status == 200


def test_an_export_leaves_out_what_clients_delete_meanwhile(gateway: Gateway, folder: Path) -> None:
    account = "161616161616"
    names = [f"t{n:03}" for n in range(200)]
    text = "".join(f"[topics.{name}]\n" for name in names)
    apply(gateway, seed_file(folder, f'account = "{account}"\n{text}'))
    sns = client(gateway, "sns", account)
    with ThreadPoolExecutor(1) as pool:
        arguments = ("--account", account, "--url", gateway.url)
        exporting = pool.submit(call, "export", *arguments)
        for name in reversed(names):
            sns.delete_topic(TopicArn=f"arn:aws:sns:us-east-1:{account}:{name}")
            if exporting.done():
                break
        done = exporting.result()
    assert done.returncode == 0, done.stderr
