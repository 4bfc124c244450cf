"""Signatures that are verified: who is let in, who is not, and what AWS says to them."""

from __future__ import annotations

import html
import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import boto3  # type: ignore[import-untyped]
import pytest
from botocore.exceptions import ClientError  # type: ignore[import-untyped]

from tests.cli.calling import call
from tests.faces.connections import Answer, fetch
from tests.faces.signing import FORM, JSON, Signer, Verifying, send
from tests.waiting import until

OWNER = "111122223333"
STRANGER = "444455556666"
CODES = {
    "mismatch": (403, "SignatureDoesNotMatch", "InvalidSignatureException"),
    "unknown": (403, "InvalidClientTokenId", "UnrecognizedClientException"),
    "incomplete": (400, "IncompleteSignature", "IncompleteSignatureException"),
    "query absent": (403, "AccessDenied", ""),
    "absent": (403, "MissingAuthenticationToken", "MissingAuthenticationTokenException"),
}


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Verifying]:
    with Verifying(tmp_path_factory.mktemp("verifying")) as running:
        yield running


@pytest.fixture(scope="module")
def owner(gateway: Verifying) -> Signer:
    signer = gateway.signer(OWNER)
    until(lambda: signer.sqs("CreateQueue", QueueName="jobs").status, lambda status: status == 200)
    return signer


@pytest.fixture(scope="module")
def stranger(gateway: Verifying) -> Signer:
    signer = gateway.signer(STRANGER)
    until(lambda: signer.sqs("ListQueues").status, lambda status: status == 200)
    return signer


def queue_url(account: str = OWNER) -> str:
    return f"http://localhost/{account}/jobs"


def client(signer: Signer, service: str, **more: Any) -> Any:
    given = {"aws_access_key_id": signer.access_key, "aws_secret_access_key": signer.secret}
    return boto3.client(service, endpoint_url=signer.url, region_name=signer.region, **given | more)


def test_the_variables_that_are_printed_let_a_client_in(gateway: Verifying) -> None:
    """A Python that loads boto3."""
    key, secret = gateway.first.access_key, gateway.first.secret
    assert gateway.hello(AWS_ACCESS_KEY_ID=key, AWS_SECRET_ACCESS_KEY=secret) == "Hello\n"


@pytest.mark.parametrize("noun", ["queues", "topics"])
def test_commands_sign_with_the_key_of_the_environment(gateway: Verifying, noun: str) -> None:
    """The native API, SQS and SNS have scopes of their own."""
    own = {
        "AWS_ACCESS_KEY_ID": gateway.first.access_key,
        "AWS_SECRET_ACCESS_KEY": gateway.first.secret,
    }
    for words in (["create", "signed"], ["show", "signed"], ["list"]):
        done = call(noun, *words, "--url", gateway.url, **own)
        assert done.returncode == 0, done.stderr
        assert "signed" in done.stdout
    wrong = call(noun, "list", "--url", gateway.url, **{**own, "AWS_SECRET_ACCESS_KEY": "wrong"})
    assert (wrong.returncode, wrong.stdout) == (1, "")
    assert "does not match the signature" in wrong.stderr


def test_boto3_is_let_in(gateway: Verifying, owner: Signer) -> None:
    sqs, sns = client(owner, "sqs"), client(owner, "sns")
    url = sqs.create_queue(QueueName="boto3")["QueueUrl"]
    sqs.send_message(QueueUrl=url, MessageBody="é  x")
    assert sqs.receive_message(QueueUrl=url)["Messages"][0]["Body"] == "é  x"
    topic = sns.create_topic(Name="news")["TopicArn"]
    arn = f"arn:aws:sqs:us-east-1:{OWNER}:boto3"
    sns.subscribe(TopicArn=topic, Protocol="sqs", Endpoint=arn)
    assert sns.publish(TopicArn=topic, Message="x & y")["MessageId"]
    scheduler = client(owner, "scheduler")
    group = scheduler.create_schedule_group(Name="a.b-c")["ScheduleGroupArn"]
    scheduler.tag_resource(ResourceArn=group, Tags=[{"Key": "a b", "Value": "ü/"}])
    assert scheduler.list_tags_for_resource(ResourceArn=group)["Tags"]
    assert client(owner, "sts").get_caller_identity()["Account"] == OWNER


@pytest.mark.parametrize(
    ("service", "ask"),
    [
        ("sqs", lambda found: found.list_queues()),
        ("sns", lambda found: found.list_topics()),
        ("scheduler", lambda found: found.list_schedules()),
        ("sts", lambda found: found.get_caller_identity()),
    ],
)
@pytest.mark.parametrize(
    ("given", "code"),
    [
        ({"aws_secret_access_key": "wrong"}, "mismatch"),
        ({"aws_access_key_id": "AKIDUNKNOWN"}, "unknown"),
        ({"aws_session_token": "of-somebody"}, "unknown"),
    ],
)
def test_boto3_is_told_why_not(
    owner: Signer, service: str, ask: Callable[[Any], object], given: dict[str, str], code: str
) -> None:
    with pytest.raises(ClientError) as refused:
        ask(client(owner, service, **given))
    status, query_code, shape = CODES[code]
    error = refused.value.response["Error"]
    assert refused.value.response["ResponseMetadata"]["HTTPStatusCode"] == status
    assert error["Code"] == (shape if service == "scheduler" else query_code)
    if service == "sqs":
        assert error["QueryErrorCode"] == shape


class Wire:
    """A request of each wire. Sends of SQS and publishes are on the fast path."""

    def __init__(
        self, service: str, method: str, target: str, headers: dict[str, str], body: bytes
    ) -> None:
        self.service, self.method, self.target = service, method, target
        self.headers, self.body = headers, body


SENT = json.dumps({"QueueUrl": queue_url(), "MessageBody": "x"}).encode()
SEND = {**JSON, "X-Amz-Target": "AmazonSQS.SendMessage"}
SENT_IN_FORM = b"Action=SendMessage&Version=2012-11-05&MessageBody=x"
WIRES = {
    "json": Wire("sqs", "POST", "/", SEND, SENT),
    "json at a queue": Wire("sqs", "POST", f"/{OWNER}/jobs", SEND, SENT),
    "form": Wire("sqs", "POST", "/", FORM, b"Action=ListQueues&Version=2012-11-05"),
    "form at a queue": Wire("sqs", "POST", f"/{OWNER}/jobs", FORM, SENT_IN_FORM),
    "query": Wire("sqs", "GET", f"/{OWNER}/jobs?Action=SendMessage&MessageBody=a%20b", {}, b""),
    "sns": Wire("sns", "POST", "/", FORM, b"Action=ListTopics&Version=2010-03-31"),
    "sts": Wire("sts", "POST", "/", FORM, b"Action=GetCallerIdentity&Version=2011-06-15"),
    "scheduler": Wire("scheduler", "GET", "/schedules?MaxResults=5", {}, b""),
    "native": Wire("sqs", "POST", "/v1/queues/jobs/messages", {}, b'{"message": 1}'),
    "logs": Wire("sqs", "GET", "/v1/logs", {}, b""),
    "channels": Wire("sqs", "GET", "/v1/channels", {}, b""),
    "simple": Wire("sqs", "GET", "/api/queues", {}, b""),
    "text": Wire("sqs", "GET", "/queue?queue=jobs", {}, b""),
}


@pytest.fixture(params=WIRES)
def wire(request: pytest.FixtureRequest) -> Wire:
    return WIRES[request.param]


def names(answer: Answer) -> str:
    """Return the text that names the error of a refusal."""
    return answer.headers.get("x-amzn-errortype", "") + answer.text + str(answer.headers)


def check(answer: Answer, wire: Wire, code: str) -> None:
    status, query_code, shape = CODES[code]
    if wire.target.startswith("/queue?"):
        assert answer.status == 401
        return
    assert answer.status == status, answer.text
    if wire.target.startswith(("/v1", "/api")):
        return
    assert shape if wire.service == "scheduler" else query_code in names(answer)


def test_each_wire_is_let_in(owner: Signer, wire: Wire) -> None:
    signer = owner.other(service=wire.service)
    for _ in range(2):
        answer = signer.ask(wire.method, wire.target, wire.headers, wire.body)
        assert answer.status < 300, answer.text
    # Where the clock of the client is a little wrong, too.
    for seconds in (-880, 880):
        late = signer.other(late_seconds=seconds)
        assert late.ask(wire.method, wire.target, wire.headers, wire.body).status < 300


WRONG: dict[str, tuple[dict[str, Any], str, str]] = {
    "secret": ({"secret": "wrong"}, "mismatch", "signature we calculated"),
    "key": ({"access_key": "AKIDOTHER"}, "unknown", "security token"),
    "region": ({"signs_for": "eu-west-1"}, "mismatch", "signature we calculated"),
    "too old": ({"late_seconds": 920}, "mismatch", "Signature expired"),
    "too new": ({"late_seconds": -920}, "mismatch", "Signature not yet current"),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_signature_is_refused(owner: Signer, wire: Wire, what: str) -> None:
    changes, code, text = WRONG[what]
    signer = owner.other(service=wire.service, **changes)
    answer = signer.ask(wire.method, wire.target, wire.headers, wire.body)
    check(answer, wire, code)
    if answer.status != 401:
        assert text in answer.text


def test_what_was_changed_on_its_way_is_refused(owner: Signer, wire: Wire) -> None:
    signer = owner.other(service=wire.service)
    mine = {**wire.headers, "X-Mine": "1"}
    headers = signer.sign(wire.method, wire.target, mine, wire.body)
    target, body = wire.target, wire.body
    fewer = {name: value for name, value in headers.items() if name != "X-Mine"}
    changed = [
        (headers, wire.method, target, body + b" "),
        (headers | {"X-Mine": "2"}, wire.method, target, body),
        (fewer, wire.method, target, body),
        (headers, wire.method, f"{target}{'&' if '?' in target else '?'}limit=1", body),
        (headers | {"x-mine": "1"}, wire.method, target, body),
        (headers | {"x-amz-content-sha256": "0" * 64}, wire.method, target, body),
    ]
    for sent, method, asked, content in changed:
        check(send(owner.url, method, asked, sent, content), wire, "mismatch")
    # A replay, and what a proxy adds, are no change.
    for sent in (headers, headers | {"X-Forwarded-For": "10.0.0.1", "Via": "1.1 proxy"}):
        assert send(owner.url, wire.method, target, sent, body).status < 300


def test_a_target_that_was_not_signed_is_refused(owner: Signer) -> None:
    wire = WIRES["json"]
    headers = owner.sign("POST", "/", SEND, SENT, leaves=("x-amz-target",))
    check(send(owner.url, "POST", "/", headers, SENT), wire, "mismatch")
    without_host = owner.sign("POST", "/", SEND, SENT, leaves=("host",))
    check(send(owner.url, "POST", "/", without_host, SENT), wire, "mismatch")


@pytest.mark.parametrize("service", ["s3", "execute-api"])
def test_a_scope_names_a_service_of_ours(owner: Signer, wire: Wire, service: str) -> None:
    signer = owner.other(service=service)
    check(signer.ask(wire.method, wire.target, wire.headers, wire.body), wire, "mismatch")


@pytest.mark.parametrize(
    ("service", "name"),
    [
        (other, name)
        for name in ("json", "form", "query", "sns", "sts", "scheduler")
        for other in ("sqs", "sns", "sts", "scheduler", "s3")
        if other != WIRES[name].service
    ],
)
def test_a_call_signed_for_another_service_is_told_so(
    owner: Signer, service: str, name: str
) -> None:
    wire = WIRES[name]
    answer = owner.other(service=service).ask(wire.method, wire.target, wire.headers, wire.body)
    assert answer.status == 403
    assert any(name in names(answer) for name in CODES["mismatch"][1:])
    said = f"Credential should be scoped to correct service: '{wire.service}'."
    assert said in html.unescape(answer.text)
    if wire.method == "GET" and wire.service == "sqs":
        target = owner.other(service=service).presign(wire.method, wire.target)
        assert said in html.unescape(send(owner.url, wire.method, target, {}).text)


def test_other_apis_take_a_scope_of_each_service(owner: Signer) -> None:
    for service, status in (("sns", 200), ("sts", 200), ("scheduler", 200), ("s3", 403)):
        assert owner.other(service=service).ask("GET", "/v1/logs").status == status


def test_an_action_that_no_service_has_is_told_so(owner: Signer) -> None:
    for service in ("sqs", "sns", "sts"):
        answer = owner.form(service, Action="Nonsense")
        assert (answer.status, "InvalidAction" in answer.text) == (400, True)


def test_bodies_that_are_not_signed_may_need_tls(tmp_path: Path) -> None:
    bare = {"X-Amz-Content-Sha256": "UNSIGNED-PAYLOAD"}
    settings = {"QUEUEGATE_UNSIGNED_PAYLOAD": "tls", "QUEUEGATE_TRUSTED_PROXIES": "127.0.0.1"}
    with Verifying(tmp_path, **settings) as server:
        first = server.first
        assert first.sqs("CreateQueue", QueueName="jobs").status == 200
        for name in ("json", "form", "sns", "scheduler", "native", "logs", "channels"):
            wire = WIRES[name]
            body = wire.body.replace(OWNER.encode(), first.account.encode())
            signer = first.other(service=wire.service)
            for proxy, status in (({}, 403), ({"X-Forwarded-Proto": "https"}, 200)):
                headers = {**wire.headers, **bare}
                signed = signer.sign(wire.method, wire.target, headers, body)
                answer = send(server.url, wire.method, wire.target, signed | proxy, body)
                assert (answer.status // 100, "UNSIGNED-PAYLOAD" in answer.text) == (
                    status // 100,
                    status == 403,
                ), (name, answer.text)
            assert signer.ask(wire.method, wire.target, wire.headers, body).status < 300


def test_bodies_that_are_not_signed_are_taken(owner: Signer, wire: Wire) -> None:
    headers = {**wire.headers, "X-Amz-Content-Sha256": "UNSIGNED-PAYLOAD"}
    signer = owner.other(service=wire.service)
    assert signer.ask(wire.method, wire.target, headers, wire.body).status < 300


@pytest.mark.parametrize("header", ["any", "Basic x", "Bearer x", "AWS4-HMAC-SHA256", "AWS x:y"])
def test_other_credentials_are_none(gateway: Verifying, wire: Wire, header: str) -> None:
    headers = {**wire.headers, "Authorization": header}
    check(send(gateway.url, wire.method, wire.target, headers, wire.body), wire, "incomplete")


_DRAWN = (
    *["AWS4-HMAC-SHA256", "Credential=", "SignedHeaders=", "Signature=", "Bearer", "qg_1_"],
    *[";", ",", "/", "=", "%", " ", "host", "\xe9", "0" * 64, "x" * 3000],
)


def test_any_credentials_are_answered(gateway: Verifying, owner: Signer, wire: Wire) -> None:
    """On whatever wire, by a refusal, and the gateway goes on."""
    draws, signer = random.Random(wire.target), owner.other(service=wire.service)
    for _ in range(20):
        drawn = "".join(draws.choices(_DRAWN, k=draws.randrange(1, 12)))
        signed = signer.sign(wire.method, wire.target, wire.headers, wire.body)
        kept, cut = signed["Authorization"], draws.randrange(200)
        for header in (drawn, kept[:cut] + drawn + kept[cut:], kept.replace("host", drawn)):
            headers = {**wire.headers, "Authorization": header}
            answer = send(gateway.url, wire.method, wire.target, headers, wire.body)
            assert 400 <= answer.status < 500, (header, answer.text)
    assert signer.ask(wire.method, wire.target, wire.headers, wire.body).status < 300


def test_a_queue_url_says_which_region_it_means(owner: Signer) -> None:
    """The scope's is that of URLs and names that say none."""
    elsewhere = owner.other(region="eu-west-1")
    assert elsewhere.sqs("CreateQueue", QueueName="jobs").status == 200
    named = f"http://localhost/queue/us-east-1/{OWNER}/jobs"
    for signer, url, region in (
        (elsewhere, queue_url(), "eu-west-1"),
        (owner, queue_url(), "us-east-1"),
        (elsewhere, named, "us-east-1"),
        (owner, named.replace("us-east-1", "eu-west-1"), "eu-west-1"),
    ):
        answer = signer.sqs("GetQueueAttributes", QueueUrl=url, AttributeNames=["QueueArn"])
        arn = json.loads(answer.body)["Attributes"]["QueueArn"]
        assert arn == f"arn:aws:sqs:{region}:{OWNER}:jobs"


def test_what_is_no_signature_is_told_what_there_is(gateway: Verifying) -> None:
    answer = send(gateway.url, "GET", "/v1/logs", {"Authorization": "queuegate log"}, b"")
    assert (answer.status, "has no signature" in answer.text) == (400, True)


def test_no_credentials_are_none(gateway: Verifying, wire: Wire) -> None:
    answer = send(gateway.url, wire.method, wire.target, wire.headers, wire.body)
    check(answer, wire, "query absent" if wire.service == "sqs" else "absent")


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_signed_url(owner: Signer, method: str) -> None:
    wire = WIRES["query"]
    target = owner.presign(method, wire.target)
    assert send(owner.url, method, target, {}).status == 200
    assert send(owner.url, method, target + "&DelaySeconds=1", {}).status == 403
    other = "POST" if method == "GET" else "GET"
    assert send(owner.url, other, target, {}).status == 403
    for late, status in ((50, 200), (70, 403)):
        signer = owner.other(late_seconds=late)
        target = signer.presign(method, wire.target)
        assert send(owner.url, method, target, {}).status == status
    wrong = owner.other(secret="wrong").presign(method, wire.target)
    check(send(owner.url, method, wrong, {}), wire, "mismatch")
    token = owner.presign(method, wire.target, token="of-somebody")
    check(send(owner.url, method, token, {}), wire, "unknown")
    half = owner.presign(method, wire.target).replace("&X-Amz-Expires=60", "")
    check(send(owner.url, method, half, {}), wire, "incomplete")


def test_a_signed_url_of_a_form(owner: Signer) -> None:
    body = b"Action=ListQueues&Version=2012-11-05"
    target = owner.presign("POST", "/?a=b", body)
    assert send(owner.url, "POST", target, FORM, body).status == 200
    assert send(owner.url, "POST", target, FORM, body + b"&x=y").status == 403


def test_what_a_url_signs_cannot_come_in_a_form(owner: Signer) -> None:
    target = owner.presign("POST", "/?Action=ListQueues")
    params = target.partition("?")[2].encode()
    assert send(owner.url, "POST", "/", FORM, params).status == 403


def test_a_key_that_is_shown_is_taken(gateway: Verifying, owner: Signer, wire: Wire) -> None:
    shown = {"Authorization": f"Bearer {_api_key(gateway)}"}
    headers = {**wire.headers, **shown}
    until(
        lambda: send(gateway.url, wire.method, wire.target, headers, wire.body).status,
        lambda status: status < 300,
    )
    headers["Authorization"] += "x"
    answer = send(gateway.url, wire.method, wire.target, headers, wire.body)
    assert answer.status in (401, 403)


_api_keys: dict[str, str] = {}


def _api_key(gateway: Verifying) -> str:
    if gateway.url not in _api_keys:
        made = gateway.keys("create", "shown", "--account", OWNER)
        _api_keys[gateway.url] = made.strip()
    return _api_keys[gateway.url]


PUBLIC = ["/livez", "/readyz", "/v1/openapi.json", "/v1/cert", "/metrics", "/docs/index.html"]


def test_what_needs_no_key(gateway: Verifying) -> None:
    for path in PUBLIC:
        assert fetch(gateway.url, path).status == 200, path


@pytest.mark.parametrize("path", ["/_admin/clock", "/_admin/outbox", "/_admin/no"])
def test_pages_are_administrators(gateway: Verifying, owner: Signer, path: str) -> None:
    assert send(gateway.url, "GET", path, {}).status == 403
    assert send(gateway.url, "GET", path, {"Authorization": "any"}).status == 403
    assert "administrator" in owner.ask("GET", path).text
    assert owner.ask("GET", path).status == 403
    status = 404 if path.endswith("no") else 200
    assert gateway.first.ask("GET", path).status == status


def test_the_clock_is_moved_by_administrators(gateway: Verifying, owner: Signer) -> None:
    move = b'{"advance_seconds": 1}'
    assert send(gateway.url, "POST", "/_admin/clock", {}, move).status == 403
    assert owner.ask("POST", "/_admin/clock", {}, move).status == 403
    headers = gateway.first.sign("POST", "/_admin/clock", {}, move)
    other = move.replace(b"1", b"9")
    assert send(gateway.url, "POST", "/_admin/clock", headers, other).status == 403
    assert send(gateway.url, "POST", "/_admin/clock", headers, b"x" * 70_000).status == 413
    assert send(gateway.url, "POST", "/_admin/clock", headers, move).status == 200


def test_an_account_is_its_keys_alone(owner: Signer, stranger: Signer) -> None:
    for action, more in (("SendMessage", {"MessageBody": "x"}), ("DeleteQueue", {})):
        refused = stranger.sqs(action, QueueUrl=queue_url(), **more)
        assert (refused.status, "AccessDenied" in refused.text) == (403, True)
        assert f"arn:aws:sqs:us-east-1:{OWNER}:jobs" in refused.text
    made = owner.form("sns", Action="CreateTopic", Name="own")
    assert made.status == 200
    topic = f"arn:aws:sns:us-east-1:{OWNER}:own"
    refused = stranger.form("sns", Action="Publish", TopicArn=topic, Message="x")
    assert (refused.status, "<Code>AuthorizationError</Code>" in refused.text) == (403, True)
    assert owner.form("sns", Action="Publish", TopicArn=topic, Message="x").status == 200


def test_without_policies_nothing_is_sent_into_another_account(tmp_path: Path) -> None:
    """Not by a subscription, its dead letters, or a schedule."""
    with Verifying(tmp_path, QUEUEGATE_POLICIES="off") as server:
        stranger = server.signer(STRANGER)
        until(lambda: stranger.sqs("ListQueues").status, lambda status: status == 200)
        _sends_elsewhere(stranger)


def _sends_elsewhere(stranger: Signer) -> None:
    assert stranger.sqs("CreateQueue", QueueName="own").status == 200
    assert stranger.form("sns", Action="CreateTopic", Name="mine").status == 200
    topic = f"arn:aws:sns:us-east-1:{STRANGER}:mine"
    target, own = (
        f"arn:aws:sqs:us-east-1:{account}:{name}"
        for account, name in ((OWNER, "jobs"), (STRANGER, "own"))
    )
    subscribe = {"Action": "Subscribe", "TopicArn": topic, "Protocol": "sqs"}
    refused = stranger.form("sns", **subscribe, Endpoint=target)
    assert "AuthorizationError" in refused.text
    policy = json.dumps({"deadLetterTargetArn": target})
    attribute = {"Attributes.entry.1.key": "RedrivePolicy", "Attributes.entry.1.value": policy}
    refused = stranger.form("sns", **subscribe, **attribute, Endpoint=own)
    assert "AuthorizationError" in refused.text
    assert stranger.form("sns", **subscribe, Endpoint=own).status == 200
    scheduler = stranger.other(service="scheduler")
    for number, (arn, dead) in enumerate(((target, own), (own, target), (own, own))):
        role = f"arn:aws:iam::{STRANGER}:role/x"
        body = {
            "ScheduleExpression": "rate(1 day)",
            "FlexibleTimeWindow": {"Mode": "OFF"},
            "Target": {"Arn": arn, "RoleArn": role, "DeadLetterConfig": {"Arn": dead}},
        }
        made = scheduler.ask("POST", f"/schedules/s{number}", {}, json.dumps(body).encode())
        assert (made.status, "AccessDenied" in str(made.headers) + made.text) == (
            (200, False) if number == 2 else (403, True)
        )


def test_administrators_go_everywhere(gateway: Verifying, owner: Signer) -> None:
    assert gateway.first.sqs("GetQueueAttributes", QueueUrl=queue_url()).status == 200


def test_a_link_of_sns_needs_its_token_alone(gateway: Verifying) -> None:
    topic = f"arn:aws:sns:us-east-1:{OWNER}:news"
    answer = send(
        gateway.url, "GET", f"/?Action=ConfirmSubscription&TopicArn={topic}&Token={'0' * 64}", {}
    )
    assert (answer.status, "InvalidParameter" in answer.text) == (400, True)


def test_a_change_of_a_key_is_known_at_once(gateway: Verifying) -> None:
    signer = gateway.signer("777788889999")
    number = str(signer.key_id)

    def becomes(status: int, who: Signer = signer) -> None:
        until(lambda: who.sqs("ListQueues").status, lambda found: found == status)

    becomes(200)
    gateway.keys("disable", number)
    becomes(403)
    gateway.keys("enable", number)
    becomes(200)
    made = json.loads(gateway.keys("rotate", number, "--overlap", "1h", "--json"))
    newer = signer.other(secret=made["secret_access_key"])
    becomes(200, newer)
    assert signer.sqs("ListQueues").status == 200
    made = json.loads(gateway.keys("rotate", number, "--overlap", "0", "--json"))
    newest = signer.other(secret=made["secret_access_key"])
    becomes(200, newest)
    assert [who.sqs("ListQueues").status for who in (signer, newer)] == [403, 403]
    gateway.keys("delete", number)
    becomes(403, newest)


def test_keys_over_rest(gateway: Verifying, owner: Signer) -> None:
    def ask(who: Signer, method: str, target: str, body: object = None) -> Answer:
        return who.ask(method, target, {}, b"" if body is None else json.dumps(body).encode())

    wanted = {"name": "rest", "kind": "access", "account_id": "123123123123"}
    assert ask(owner, "POST", "/v1/keys", wanted).status == 403
    made = json.loads(ask(gateway.first, "POST", "/v1/keys", wanted).body)
    assert (made["kind"], made["account_id"], "key" in made) == ("access", "123123123123", False)
    signer = Signer(
        gateway.url, made["access_key_id"], made["secret_access_key"], made["account_id"]
    )
    # No waiting: who has the answer can use it.
    assert signer.sqs("ListQueues").status == 200
    place = f"/v1/keys/{made['id']}"
    assert ask(gateway.first, "PATCH", place, {"disabled": True}).status == 200
    assert signer.sqs("ListQueues").status == 403
    assert ask(gateway.first, "PATCH", place, {"disabled": False}).status == 200
    rotated = ask(gateway.first, "POST", f"{place}/rotations", {"overlap_seconds": 60})
    assert (rotated.status, rotated.headers["cache-control"]) == (200, "no-store")
    newer = signer.other(secret=json.loads(rotated.body)["secret_access_key"])
    assert [who.sqs("ListQueues").status for who in (signer, newer)] == [200, 200]
    listed = json.loads(ask(gateway.first, "GET", "/v1/keys?account=123123123123").body)
    assert [(key["id"], key["previous_until"] is None) for key in listed] == [(made["id"], False)]
    assert newer.secret not in str(listed)
    for method, target, body in (
        ("GET", "/v1/keys", None),
        ("GET", place, None),
        ("PATCH", place, {"disabled": True}),
        ("POST", f"{place}/rotations", None),
        ("DELETE", place, None),
    ):
        assert ask(newer, method, target, body).status == 403
    assert ask(gateway.first, "DELETE", place).status == 204
    assert newer.sqs("ListQueues").status == 403
