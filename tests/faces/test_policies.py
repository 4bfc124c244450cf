"""Policies where they are enforced, on the wire."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import IO, Any, NamedTuple

import pytest

from tests.cli.calling import call
from tests.faces.clients import WIRES, Refused, Sqs, authorization
from tests.faces.connections import Connection, fetch, request_bytes
from tests.faces.rest.client import Rest
from tests.faces.scheduler_client import Scheduler
from tests.faces.servers import Server
from tests.faces.signing import Signer, Verifying
from tests.faces.sns_client import PUBLISH_WIRES, Sns
from tests.faces.web_hooks import WebHook
from tests.waiting import until


@pytest.fixture(scope="module")
def enforcing() -> Iterator[Server]:
    with Server(QUEUEGATE_POLICIES="enforce") as server:
        yield server


class World(NamedTuple):
    """Two accounts at one gateway, with a client of each service."""

    sqs: Sqs
    sns: Sns
    other_sqs: Sqs
    other_sns: Sns

    def allow(self, queue: str, **members: Any) -> None:
        """Give the queue a policy of one statement."""
        statement = {"Effect": "Allow", "Principal": "*", "Action": "sqs:SendMessage", **members}
        policy = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
        self.sqs.call("SetQueueAttributes", QueueUrl=queue, Attributes={"Policy": policy})

    def bodies(self, queue: str) -> list[str]:
        return [one["Body"] for one in self.sqs.receive(queue, 10)]


def _world(server: Server, stack: ExitStack, wire: str = "json") -> World:
    sqs = stack.enter_context(Sqs(wire if wire in WIRES else "json", server.url))
    sns = stack.enter_context(Sns(wire, server.url, sqs.account))
    other = stack.enter_context(sqs.other(account=f"9{sqs.account[1:]}"))
    return World(sqs, sns, other, stack.enter_context(sns.other(account=other.account)))


@pytest.fixture
def world(enforcing: Server) -> Iterator[World]:
    with ExitStack() as stack:
        yield _world(enforcing, stack)


@pytest.mark.parametrize("wire", WIRES)
def test_other_accounts_need_a_queues_policy(enforcing: Server, wire: str) -> None:
    with ExitStack() as stack:
        world = _world(enforcing, stack, wire)
        queue = world.sqs.create("orders")
        url = queue
        world.sqs.send(queue, "mine")
        with pytest.raises(Refused) as refused:
            world.other_sqs.send(url, "theirs")
        assert refused.value.status == 403
        user = f"arn:aws:iam::{world.other_sqs.account}:user/{world.other_sqs.account}"
        arn = world.sqs.arn(queue)
        assert refused.value.text == (
            f"User: {user} is not authorized to perform: sqs:sendmessage on resource: {arn} "
            "because no resource-based policy allows the sqs:sendmessage action"
        )
        world.allow(queue, Principal={"AWS": world.other_sqs.account})
        world.other_sqs.send(url, "theirs")
        for refuse in (world.other_sqs.receive, world.other_sqs.attributes):
            with pytest.raises(Refused):
                refuse(url)
        assert sorted(world.bodies(queue)) == ["mine", "theirs"]


@pytest.mark.parametrize("wire", WIRES)
def test_a_resource_that_is_no_arn_is_stored_and_matches_nothing(
    enforcing: Server, wire: str
) -> None:
    """Recorded for '$sqs_queue_arn' (docs/contract/policies.md 5.1)."""
    with ExitStack() as stack:
        world = _world(enforcing, stack, wire)
        queue = world.sqs.create("orders")
        for resource in ("$sqs_queue_arn", "orders", ""):
            world.allow(queue, Resource=resource)
            stored = json.loads(world.sqs.attributes(queue)["Policy"])
            assert stored["Statement"][0]["Resource"] == resource
            with pytest.raises(Refused, match="no resource-based policy allows"):
                world.other_sqs.send(queue, "theirs")
        # An ARN of fewer than six fields.
        world.allow(queue, Resource="arn:aws:sqs:*:orders")
        world.other_sqs.send(queue, "theirs")
        assert world.bodies(queue) == ["theirs"]


def test_a_deny_counts_for_the_owner_too(world: World) -> None:
    queue = world.sqs.create("orders")
    world.sqs.send(queue, "before")
    world.allow(queue, Effect="Deny", Principal={"AWS": world.sqs.account})
    with pytest.raises(Refused, match="with an explicit deny in a resource-based policy"):
        world.sqs.send(queue, "after")
    assert world.bodies(queue) == ["before"]
    world.sqs.call("SetQueueAttributes", QueueUrl=queue, Attributes={"Policy": ""})
    world.sqs.send(queue, "again")
    assert world.bodies(queue) == ["again"]


def test_no_policy_gives_what_only_owners_may_do(world: World) -> None:
    queue = world.sqs.create("orders")
    world.allow(queue, Action="sqs:*", Principal={"AWS": world.other_sqs.account})
    world.other_sqs.send(queue, "theirs")
    for action, members in (
        ("DeleteQueue", {}),
        ("SetQueueAttributes", {"Attributes": {"Policy": ""}}),
        ("TagQueue", {"Tags": {"a": "b"}}),
    ):
        with pytest.raises(Refused) as refused:
            world.other_sqs.call(action, QueueUrl=queue, **members)
        assert refused.value.status == 403
    assert world.bodies(queue) == ["theirs"]


@pytest.mark.parametrize("wire", PUBLISH_WIRES)
def test_other_accounts_need_a_topics_policy(enforcing: Server, wire: str) -> None:
    with ExitStack() as stack:
        world = _world(enforcing, stack, wire)
        topic = world.sns.create("news")
        world.sns.call("Publish", TopicArn=topic, Message="mine")
        for action, members in (
            ("Publish", {"Message": "theirs"}),
            ("GetTopicAttributes", {}),
            ("DeleteTopic", {}),
        ):
            with pytest.raises(Refused) as refused:
                world.other_sns.call(action, TopicArn=topic, **members)
            assert (refused.value.status, refused.value.code or refused.value.type) in (
                (403, "AuthorizationError"),
                (403, "AuthorizationErrorException"),
            )
        world.sns.call(
            "AddPermission",
            TopicArn=topic,
            Label="publish",
            AWSAccountId=[world.other_sns.account],
            ActionName=["Publish"],
        )
        world.other_sns.call("Publish", TopicArn=topic, Message="theirs")


DENY = {"Effect": "Deny", "Principal": "*", "Action": "*", "Resource": "*"}


@pytest.mark.parametrize("wire", WIRES)
def test_nobody_learns_which_queues_another_account_has(enforcing: Server, wire: str) -> None:
    with ExitStack() as stack:
        world = _world(enforcing, stack, wire)
        place = f"{enforcing.url}/{world.sqs.account}/"
        for name, more in (("plain", {}), ("denying", DENY), ("other", {"Principal": "*"})):
            world.sqs.create(name)
            if more:
                world.allow(f"{place}{name}", **more)
        for action, members in (
            ("SendMessage", {"MessageBody": "x"}),
            ("ReceiveMessage", {}),
            ("PurgeQueue", {}),
            ("DeleteQueue", {}),
            ("GetQueueAttributes", {}),
            ("ListQueueTags", {}),
        ):
            names = ["plain", "denying", "absent"] + ["other"] * (action != "SendMessage")
            told = set()
            for name in names:
                with pytest.raises(Refused) as refused:
                    world.other_sqs.call(action, QueueUrl=f"{place}{name}", **members)
                told.add((refused.value.status, str(refused.value).replace(name, "NAME")))
            assert len(told) == 1, told
            assert next(iter(told))[0] == 403
        owner = {"QueueOwnerAWSAccountId": world.sqs.account}
        for name in ("plain", "absent"):
            with pytest.raises(Refused, match="no resource-based policy allows"):
                world.other_sqs.call("GetQueueUrl", QueueName=name, **owner)
        # Its own account is told that there is none.
        with pytest.raises(Refused, match="does not exist"):
            world.sqs.send(f"{place}absent", "x")


@pytest.mark.parametrize("wire", PUBLISH_WIRES)
def test_nobody_learns_which_topics_another_account_has(enforcing: Server, wire: str) -> None:
    with ExitStack() as stack:
        world = _world(enforcing, stack, wire)
        plain, denying = world.sns.create("plain"), world.sns.create("denying")
        deny = {**DENY, "Action": "sns:Publish"}
        world.sns.set(denying, "Policy", json.dumps({"Statement": deny}))
        for action, members in (
            ("Publish", {"Message": "x"}),
            ("GetTopicAttributes", {}),
            ("DeleteTopic", {}),
            ("Subscribe", {"Protocol": "email", "Endpoint": "ada@example.com"}),
        ):
            told = set()
            for topic in (plain, denying, plain.replace("plain", "absent")):
                with pytest.raises(Refused) as refused:
                    world.other_sns.call(action, TopicArn=topic, **members)
                name = topic.rpartition(":")[2]
                told.add((refused.value.status, str(refused.value).replace(name, "NAME")))
            assert len(told) == 1, told
            assert next(iter(told))[0] == 403


def test_the_scheduler_calls_a_missing_permission_access_denied(tmp_path: Path) -> None:
    """Missing credentials have another name there."""
    document = tmp_path / "policy"
    nothing = {"Effect": "Allow", "Action": "sqs:ListQueues", "Resource": "*"}
    document.write_text(json.dumps({"Version": "2012-10-17", "Statement": nothing}))
    with Verifying(tmp_path) as server:
        limited = server.signer("111122223333", "--policy", str(document))
        until(lambda: limited.sqs("ListQueues").status, lambda found: found == 200)
        for path in ("/schedules", "/schedules/absent"):
            answer = limited.other(service="scheduler").ask("GET", path)
            shown = answer.status, answer.headers["x-amzn-errortype"]
            assert shown == (403, "AccessDeniedException")
        topics = limited.form("sns", Action="ListTopics")
        assert (topics.status, "<Code>AuthorizationError</Code>" in topics.text) == (403, True)
        answer = fetch(server.url, "/schedules")
        assert answer.headers["x-amzn-errortype"] == "MissingAuthenticationTokenException"


def test_protocol_and_endpoint_of_a_subscription(world: World) -> None:
    topic = world.sns.create("news")
    statement = {
        "Effect": "Allow",
        "Principal": {"AWS": world.other_sns.account},
        "Action": "SNS:Subscribe",
        "Resource": topic,
        "Condition": {"StringLike": {"sns:Endpoint": "*@example.com"}},
    }
    world.sns.set(topic, "Policy", json.dumps({"Statement": statement}))
    world.other_sns.subscribe(topic, "email", "ada@example.com")
    with pytest.raises(Refused):
        world.other_sns.subscribe(topic, "email", "ada@example.org")


@pytest.mark.parametrize("is_known", [True, False])
def test_a_queue_that_does_not_let_sns_in_gets_nothing(
    enforcing: Server, world: World, is_known: bool
) -> None:
    queue, dead, topic = world.sqs.create("orders"), world.sqs.create("dead"), world.sns.create()
    redrive = json.dumps({"deadLetterTargetArn": world.sqs.arn(dead)})
    raw = {"RawMessageDelivery": "true", "RedrivePolicy": redrive}
    world.sns.subscribe(topic, "sqs", world.sqs.arn(queue), **raw)
    labels = f'{{account="{world.sns.account}"'
    world.allow(dead, Principal={"Service": "sns.amazonaws.com"})
    if is_known:
        world.sqs.attributes(queue)
        world.sqs.attributes(dead)
    world.sns.call("Publish", TopicArn=topic, Message="one")
    assert (world.bodies(queue), world.bodies(dead)) == ([], ["one"])
    world.sqs.call("SetQueueAttributes", QueueUrl=dead, Attributes={"Policy": ""})
    world.sns.call("Publish", TopicArn=topic, Message="two")
    assert (world.bodies(queue), world.bodies(dead)) == ([], [])
    for outcome in ("kept", "dropped"):
        sample = f'queuegate_topic_copies_refused_total{labels},outcome="{outcome}"}}'
        assert enforcing.metric(sample) == 1
    source = {"ArnEquals": {"aws:SourceArn": topic}}
    world.allow(queue, Principal={"Service": "sns.amazonaws.com"}, Condition=source)
    world.sns.call("Publish", TopicArn=topic, Message="three")
    assert world.bodies(queue) == ["three"]
    others = world.sns.create("others")
    world.sns.subscribe(others, "sqs", world.sqs.arn(queue))
    world.sns.call("Publish", TopicArn=others, Message="four")
    assert world.bodies(queue) == []


def test_addresses_count_on_every_path(enforcing: Server, world: World) -> None:
    queue = world.sqs.create("orders")
    other = {"AWS": world.other_sqs.account}
    here = {"IpAddress": {"aws:SourceIp": ["127.0.0.0/8", "::1"]}}
    world.allow(queue, Principal=other, Condition=here)
    for _ in range(3):
        world.other_sqs.send(queue, "theirs")
    assert len(world.bodies(queue)) == 3
    elsewhere = {"NotIpAddress": {"aws:SourceIp": ["127.0.0.0/8", "::1"]}}
    for condition in (elsewhere, {"Bool": {"aws:SecureTransport": "true"}}):
        world.allow(queue, Principal=other, Condition=condition)
        for _ in range(3):
            with pytest.raises(Refused):
                world.other_sqs.send(queue, "theirs")
    world.allow(queue, Effect="Deny", Condition=here)
    for _ in range(2):
        with pytest.raises(Refused, match="explicit deny"):
            world.sqs.send(queue, "mine")
    world.allow(queue, Principal=other, Condition={"StringLike": {"aws:UserAgent": "Boto3/*"}})
    body = json.dumps({"QueueUrl": queue, "MessageBody": "theirs"}).encode()
    for agent, status in (("Boto3/1.40", 200), ("curl", 403)):
        headers = {
            "Content-Type": "application/x-amz-json-1.0",
            "X-Amz-Target": "AmazonSQS.SendMessage",
            "Authorization": authorization(world.other_sqs.account),
            "User-Agent": agent,
        }
        with Connection(enforcing.url) as connection:
            connection.send(request_bytes("POST", "/", {"Host": connection.host, **headers}, body))
            assert connection.answer().status == status


@pytest.mark.parametrize(
    ("action", "which"),
    [
        ("sqs:StartMessageMoveTask", "dead"),
        ("sqs:ReceiveMessage", "dead"),
        ("sqs:DeleteMessage", "dead"),
        ("sqs:SendMessage", "source"),
        ("sqs:ListMessageMoveTasks", "dead"),
    ],
)
def test_moves_of_dead_letters_ask_the_policies_of_both_queues(
    world: World, action: str, which: str
) -> None:
    """To move them back is to receive, delete and send them."""
    dead = world.sqs.create("dead")
    redrive = json.dumps({"deadLetterTargetArn": world.sqs.arn(dead), "maxReceiveCount": 1})
    source = world.sqs.create("source", RedrivePolicy=redrive)
    arn = world.sqs.arn(dead)
    queue = dead if which == "dead" else source
    is_list = action == "sqs:ListMessageMoveTasks"
    asked = "ListMessageMoveTasks" if is_list else "StartMessageMoveTask"
    world.allow(queue, Effect="Deny", Action=action)
    with pytest.raises(Refused, match="with an explicit deny in a resource-based policy"):
        world.sqs.call(asked, SourceArn=arn)
    world.sqs.call("SetQueueAttributes", QueueUrl=queue, Attributes={"Policy": ""})
    assert world.sqs.call("ListMessageMoveTasks", SourceArn=arn).get("Results", []) == []
    world.sqs.call(asked, SourceArn=arn)


def test_a_redrive_asks_the_policy_of_the_queue_that_gets_messages_back(
    enforcing: Server, world: World
) -> None:
    dead = world.sqs.create("dead")
    redrive = json.dumps({"deadLetterTargetArn": world.sqs.arn(dead), "maxReceiveCount": 1})
    source = world.sqs.create("source", RedrivePolicy=redrive)
    world.sqs.send(source, "failed")
    for _ in range(2):
        world.sqs.receive(source, VisibilityTimeout=0)
    headers = {"Authorization": authorization(world.sqs.account)}

    def status() -> int:
        with Connection(enforcing.url) as connection:
            known = {"Host": connection.host, **headers}
            connection.send(request_bytes("POST", "/v1/queues/dead/redrives", known, b"{}"))
            return connection.answer().status

    for queue, action in ((source, "sqs:SendMessage"), (dead, "sqs:DeleteMessage")):
        world.allow(queue, Effect="Deny", Action=action)
        assert status() == 403
        world.sqs.call("SetQueueAttributes", QueueUrl=queue, Attributes={"Policy": ""})
    assert (world.bodies(source), status(), world.bodies(source)) == ([], 200, ["failed"])


def test_dead_letters_of_web_hooks_ask_the_policy_of_their_queue(
    enforcing: Server, world: World
) -> None:
    dead, topic = world.sqs.create("dead"), world.sns.create()
    redrive = json.dumps({"deadLetterTargetArn": world.sqs.arn(dead)})
    place = f'{{account="{world.sns.account}",region="us-east-1",topic="{topic.split(":")[-1]}"}}'
    with WebHook() as hook:
        world.sns.subscribe(topic, "http", hook.url, RedrivePolicy=redrive)
        link = hook.next().envelope["SubscribeURL"]
        assert fetch(world.sns.url, link.removeprefix(world.sns.url)).status == 200
        hook.statuses += [404, 404]
        world.sns.publish(topic, "barred")
        enforcing.until(f"queuegate_topic_copies_barred_total{place}", 1)
        enforcing.until(f"queuegate_topic_deliveries_exhausted_total{place}", 1)
        world.allow(dead, Principal={"Service": "sns.amazonaws.com"})
        world.sns.publish(topic, "let in")
        found = world.sqs.call("ReceiveMessage", QueueUrl=dead, WaitTimeSeconds=20)["Messages"]
    assert [json.loads(one["Body"])["Message"] for one in found] == ["let in"]


def test_a_trial_names_the_queue_whose_policy_bars_the_topic(
    enforcing: Server, world: World
) -> None:
    queue, topic = world.sqs.create("orders"), world.sns.create("news")
    world.sns.subscribe(topic, "sqs", world.sqs.arn(queue))

    def reasons() -> list[str]:
        with Rest(enforcing.url, world.sns.account) as rest:
            found = rest.call("POST", "/v1/topics/news/trials", {"message": 1})
        told: list[str] = found["subscriptions"][0]["reasons"]
        return told

    assert reasons() == ["the policy of the queue does not allow the topic to send"]
    world.allow(queue, Principal={"Service": "sns.amazonaws.com"})
    until(reasons, lambda found: found == [])


def test_what_a_schedule_may_not_send_is_a_dead_letter(enforcing: Server, world: World) -> None:
    """boto3 makes the schedules. What they send is counted."""
    queue, dead = world.sqs.create("orders"), world.sqs.create("dead")
    topic = world.sns.create("news")
    world.allow(queue, Effect="Deny")
    statement = {"Effect": "Deny", "Principal": "*", "Action": "sns:Publish", "Resource": topic}
    world.sns.set(topic, "Policy", json.dumps({"Statement": statement}))
    failed = 'queue_schedule_fires_total{outcome="failure"}'
    before = enforcing.metric(failed)
    with closing(Scheduler(enforcing.url, world.sqs.account)) as scheduler:
        for name, arn in (("queue", world.sqs.arn(queue)), ("topic", topic)):
            more = {
                "Input": name,
                "DeadLetterConfig": {"Arn": world.sqs.arn(dead)},
                "RetryPolicy": {"MaximumRetryAttempts": 0},
            }
            target = scheduler.target(arn, **more)
            scheduler.create(name, ScheduleExpression="rate(1 day)", Target=target)
        reasons = {}
        for _ in range(2):
            [found] = world.sqs.call(
                "ReceiveMessage",
                QueueUrl=dead,
                WaitTimeSeconds=20,
                MessageAttributeNames=["ERROR_MESSAGE"],
            )["Messages"]
            world.sqs.call("DeleteMessage", QueueUrl=dead, ReceiptHandle=found["ReceiptHandle"])
            reasons[found["Body"]] = found["MessageAttributes"]["ERROR_MESSAGE"]["StringValue"]
    assert set(reasons) == {"queue", "topic"}
    assert all(
        "with an explicit deny in a resource-based policy" in one for one in reasons.values()
    )
    assert enforcing.metric(failed) == before + 2
    assert world.bodies(queue) == []


def _logging(file: IO[str], **settings: str) -> Server:
    class Logging(Server):
        log = file

    return Logging(**settings)


def test_words_of_policies_forge_no_lines(tmp_path: Path) -> None:
    forged = "aws:a\n12:00:00 warning queuegate.server forged \x1b[31m\u2028"
    log = tmp_path / "log"
    with log.open("w") as file, ExitStack() as stack:
        settings = {"QUEUEGATE_POLICIES": "enforce", "QUEUEGATE_LOG_FORMAT": "text"}
        world = _world(stack.enter_context(_logging(file, **settings)), stack)
        queue = world.sqs.create("orders")
        statement = {"Sid": forged, "Effect": "Deny", "Principal": "*", "Action": "sqs:*"}
        conditions = {"Condition": {"StringNotEquals": {forged: "a"}}}
        world.allow(queue, **statement | conditions)
        with pytest.raises(Refused):
            world.sqs.send(queue, "x")
    [unknown, denied] = [line for line in log.read_text().split("\n") if "forged" in line]
    assert "never there" in unknown
    assert "explicit deny" in denied
    assert "\x1b" not in log.read_text()


ABSENT = {"ForAnyValue:StringLike": {"aws:PrincipalOrgPaths": "o/*", "aws:SourceVpc": "v"}}
TWICE = (
    '{"Version": "2012-10-17", "Statement": {"Effect": "Deny", "Effect" : "Allow", '
    '"Principal": "*", "Action": "sqs:SendMessage", "Resource": "$queue_arn"}}'
)


@pytest.mark.parametrize("policies", ["off", "enforce"])
def test_what_a_policy_may_not_mean_is_told_once_when_it_is_set(
    tmp_path: Path, policies: str, caplog: pytest.LogCaptureFixture
) -> None:
    log, document = tmp_path / "log", tmp_path / "policy"
    with log.open("w") as file, ExitStack() as stack:
        server = stack.enter_context(_logging(file, QUEUEGATE_POLICIES=policies))
        world = _world(server, stack)
        made = world.sqs.call("CreateQueue", QueueName="twice", Attributes={"Policy": TWICE})
        shown = json.loads(world.sqs.attributes(made["QueueUrl"])["Policy"])
        assert shown["Statement"]["Effect"] == "Allow"
        queue, topic = world.sqs.create("orders"), world.sns.create("news")
        world.allow(queue, Condition=ABSENT)
        world.allow(world.sqs.create("fine"), Condition={"Null": {"aws:username": "true"}})
        statement = {"Effect": "Allow", "Principal": "*", "Action": "SNS:Publish"}
        policy = {"Statement": {**statement, "Resource": topic, "Condition": ABSENT}}
        world.sns.set(topic, "Policy", json.dumps(policy))
        world.sns.set(topic, "DisplayName", "News")
        del policy["Statement"]["Principal"]
        document.write_text(json.dumps(policy))
        on = {"DATABASE_URL": server.dsn}
        key = call("keys", "create", "till", "--policy", str(document), **on)
        for _ in range(2):
            world.sqs.send(queue, "mine")
        doctor = call("doctor", "--port", "0", **on)
        twice, *arns = world.sqs.arn(made["QueueUrl"]), world.sqs.arn(queue), topic
    said = [json.loads(line)["message"] for line in log.read_text().splitlines()]
    keys = "asks for aws:principalorgpaths, aws:sourcevpc, which is never there"
    assert [one for one in said if "The policy of" in one] == [
        f"The policy of {twice} has a member twice: the last one counts.",
        *(f"The policy of {arn} {keys}." for arn in arns),
    ]
    assert [one.message for one in caplog.records] == [f"The policy of key till {keys}."]
    [line] = [one for one in doctor.stdout.splitlines() if " policies: " in one]
    number = key.stdout.partition("_")[2].partition("_")[0]
    for name in (*arns, f"key {number} of account 000000000000"):
        assert f"the policy of {name} {keys}" in line
    assert "fine" not in line
    assert doctor.returncode == 0


def test_warnings_about_deliveries_have_the_statement_that_is_missing(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with log.open("w") as file, ExitStack() as stack:
        warning = stack.enter_context(_logging(file, QUEUEGATE_POLICIES="warn"))
        world = _world(warning, stack)
        queue, topic = world.sqs.create("orders"), world.sns.create("news")
        world.sns.subscribe(topic, "sqs", world.sqs.arn(queue), RawMessageDelivery="true")
        for text in ("one", "two"):
            world.sns.publish(topic, text)
        assert world.bodies(queue) == ["one", "two"]
        arn = world.sqs.arn(queue)
        scheduler = Scheduler(warning.url, world.other_sqs.account)
        with closing(scheduler):
            target = scheduler.target(arn, Input="three")
            scheduler.create(ScheduleExpression="rate(1 day)", Target=target)
            found = world.sqs.call("ReceiveMessage", QueueUrl=queue, WaitTimeSeconds=20)
        assert [one["Body"] for one in found["Messages"]] == ["three"]
    said = [json.loads(line)["message"] for line in log.read_text().splitlines()]
    lines = [one for one in said if "would be refused by AWS" in one]
    assert [topic in one for one in lines] == [True, False]
    missing = [json.loads(one.partition("Missing statement: ")[2]) for one in lines]
    assert [one["Resource"] for one in missing] == [arn, arn]
    assert [one["Principal"] for one in missing] == [
        {"Service": "sns.amazonaws.com"},
        {"AWS": scheduler.role},
    ]


def test_replays_ask_the_policies_of_queues(enforcing: Server, world: World) -> None:
    start = enforcing.now()
    topic = world.sns.create_fifo(ArchivePolicy='{"MessageRetentionPeriod":"30"}')
    for number in range(3):
        world.sns.publish(topic, str(number), MessageGroupId="a")
    queue, dead = world.sqs.create_fifo("late.fifo"), world.sqs.create_fifo("dead.fifo")
    world.allow(dead, Principal={"Service": "sns.amazonaws.com"})
    subscribed = world.sns.subscribe(
        topic,
        "sqs",
        world.sqs.arn(queue),
        RawMessageDelivery="true",
        RedrivePolicy=json.dumps({"deadLetterTargetArn": world.sqs.arn(dead)}),
        ReplayPolicy=json.dumps({"PointType": "Timestamp", "StartingPoint": start}),
    )
    until(
        lambda: world.sns.subscription(subscribed)["ReplayStatus"],
        lambda status: status == "Completed",
    )
    assert (world.bodies(queue), world.bodies(dead)) == ([], ["0", "1", "2"])
    sample = f'queuegate_topic_copies_barred_total{{account="{world.sns.account}"'
    assert enforcing.metric(f'{sample},region="us-east-1",topic="{topic.split(":")[-1]}"}}') == 3


def _taken(signer: Signer, url: str) -> list[Any]:
    """Receive and delete the messages of a queue; return their bodies."""
    found = json.loads(signer.sqs("ReceiveMessage", QueueUrl=url).body).get("Messages", [])
    for one in found:
        signer.sqs("DeleteMessage", QueueUrl=url, ReceiptHandle=one["ReceiptHandle"])
    return [json.loads(one["Body"]) for one in found]


def test_subscriptions_across_accounts(tmp_path: Path) -> None:
    """As on AWS: the topic lets them subscribe, the queue lets SNS send, and its owner confirms."""
    owner_id, other_id = "111122223333", "444455556666"
    with Verifying(tmp_path) as server:
        owner, other = server.signer(owner_id), server.signer(other_id)
        stranger = server.signer("777788889999")
        topic = {"TopicArn": f"arn:aws:sns:us-east-1:{owner_id}:news"}
        for signer in (owner, other, stranger):
            until(lambda: signer.sqs("ListQueues").status, lambda found: found == 200)  # noqa: B023
        url = json.loads(other.sqs("CreateQueue", QueueName="jobs").body)["QueueUrl"]
        queue = {"Protocol": "sqs", "Endpoint": f"arn:aws:sqs:us-east-1:{other_id}:jobs"}
        assert owner.form("sns", Action="CreateTopic", Name="news").status == 200

        def bodies() -> list[Any]:
            return _taken(other, url)

        def let_in() -> None:
            principal = {"Service": "sns.amazonaws.com"}
            source = {"ArnEquals": {"aws:SourceArn": topic["TopicArn"]}}
            statement = {"Effect": "Allow", "Principal": principal, "Action": "sqs:SendMessage"}
            policy = {"Policy": json.dumps({"Statement": {**statement, "Condition": source}})}
            assert other.sqs("SetQueueAttributes", QueueUrl=url, Attributes=policy).status == 200

        def publish() -> None:
            assert owner.form("sns", Action="Publish", **topic, Message="x").status == 200

        # The owner of the topic asks the queue's.
        assert "pending" in owner.form("sns", Action="Subscribe", **topic, **queue).text
        assert bodies() == []
        let_in()
        assert "pending" in owner.form("sns", Action="Subscribe", **topic, **queue).text
        [asked] = bodies()
        publish()
        assert bodies() == []
        confirm = {"Action": "ConfirmSubscription", **topic, "Token": asked["Token"]}
        confirmed = other.form("sns", **confirm, AuthenticateOnUnsubscribe="true")
        assert confirmed.status == 200
        publish()
        assert [one["Message"] for one in bodies()] == ["x"]
        arn = confirmed.text.partition("<SubscriptionArn>")[2].partition("<")[0]
        refused = stranger.form("sns", Action="Unsubscribe", SubscriptionArn=arn)
        assert (refused.status, "AuthorizationError" in refused.text) == (403, True)
        publish()
        assert [one["Message"] for one in bodies()] == ["x"]
        assert owner.form("sns", Action="Unsubscribe", SubscriptionArn=arn).status == 200
        publish()
        assert bodies() == []
        # The owner of the queue subscribes it, and has to be let.
        assert other.form("sns", Action="Subscribe", **topic, **queue).status == 403
        permission = {"Label": "a", "AWSAccountId.member.1": other_id}
        permission |= {"ActionName.member.1": "Subscribe", "Action": "AddPermission"}
        assert owner.form("sns", **permission, **topic).status == 200
        subscribed = other.form("sns", Action="Subscribe", **topic, **queue).text
        assert "pending" not in subscribed
        publish()
        assert [one["Message"] for one in bodies()] == ["x"]
        arn = subscribed.partition("<SubscriptionArn>")[2].partition("<")[0]
        assert other.form("sns", Action="Unsubscribe", SubscriptionArn=arn).status == 200
        publish()
        assert bodies() == []


def test_keys_of_other_accounts_get_what_policies_give(tmp_path: Path) -> None:
    owner_id, stranger_id = "111122223333", "444455556666"
    with Verifying(tmp_path) as server:
        owner, stranger = server.signer(owner_id), server.signer(stranger_id)
        made = owner.sqs("CreateQueue", QueueName="jobs").body
        send = {"QueueUrl": json.loads(made)["QueueUrl"], "MessageBody": "x"}
        assert stranger.sqs("SendMessage", **send).status == 403
        user = f"arn:aws:iam::{stranger_id}:user/{stranger.access_key}"
        statement = {"Effect": "Allow", "Principal": {"AWS": user}, "Action": "sqs:SendMessage"}
        policy = {"Policy": json.dumps({"Statement": statement})}
        given = owner.sqs("SetQueueAttributes", QueueUrl=send["QueueUrl"], Attributes=policy)
        assert given.status == 200
        assert stranger.sqs("SendMessage", **send).status == 200
        assert server.signer("555566667777").sqs("SendMessage", **send).status == 403
        for action in ("ReceiveMessage", "PurgeQueue", "DeleteQueue", "ListQueueTags"):
            assert stranger.sqs(action, QueueUrl=send["QueueUrl"]).status == 403
        arn = f"arn:aws:sqs:us-east-1:{owner_id}:jobs"
        assert stranger.sqs("ListMessageMoveTasks", SourceArn=arn).status == 403
        assert owner.form("sns", Action="CreateTopic", Name="news").status == 200
        topic = {"TopicArn": f"arn:aws:sns:us-east-1:{owner_id}:news"}
        publish = {"Action": "Publish", **topic, "Message": "x"}
        assert stranger.form("sns", **publish).status == 403
        permission = {
            "Action": "AddPermission",
            **topic,
            "Label": "a",
            "AWSAccountId.member.1": stranger_id,
            "ActionName.member.1": "Publish",
        }
        assert stranger.form("sns", **permission).status == 403
        assert owner.form("sns", **permission).status == 200
        assert stranger.form("sns", **publish).status == 200
        # Administrators need no statement.
        assert server.first.sqs("SendMessage", **send).status == 200
