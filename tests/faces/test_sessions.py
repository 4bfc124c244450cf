"""Temporary credentials where signatures are verified: whose they are, what they may, their end."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import boto3  # type: ignore[import-untyped]
import pytest
from botocore.config import Config  # type: ignore[import-untyped]
from botocore.exceptions import ClientError  # type: ignore[import-untyped]

from tests.faces.connections import fetch
from tests.faces.signing import MASTER_KEY, Signer, Verifying, send
from tests.waiting import until

OWNER, STRANGER = "111122223333", "444455556666"
ROLE = f"arn:aws:iam::{OWNER}:role/reader"
INVALID = "InvalidClientTokenId"
PROFILE = """[profile base]
aws_access_key_id = {0.access_key}
aws_secret_access_key = {0.secret}
[profile role]
role_arn = {1}
role_session_name = nightly
source_profile = base
"""
IN_PROFILE = """
import boto3
print(boto3.client("sts").get_caller_identity()["Arn"])
print(boto3.client("sqs").create_queue(QueueName="by-profile")["QueueUrl"])
print(boto3.client("sns").create_topic(Name="by-profile")["TopicArn"])
print(len(boto3.client("scheduler").list_schedules()["Schedules"]))
"""

Credentials = Mapping[str, str]


def document(*statements: Mapping[str, Any]) -> str:
    return json.dumps({"Version": "2012-10-17", "Statement": statements})


def allow(action: str, resource: str = "*", **more: Any) -> dict[str, Any]:
    return {"Effect": "Allow", "Action": action, "Resource": resource, **more}


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Verifying]:
    with Verifying(tmp_path_factory.mktemp("verifying")) as running:
        yield running


@pytest.fixture(scope="module")
def owner(gateway: Verifying) -> Signer:
    return ready(gateway.signer(OWNER))


def ready(signer: Signer) -> Signer:
    until(lambda: signer.sqs("ListQueues").status, lambda status: status in (200, 400, 403))
    until(lambda: signer.form("sts", Action="GetCallerIdentity").status, lambda found: found == 200)
    return signer


class Logging(Verifying):
    """One whose standard error is a file."""

    def __init__(self, folder: Path, **more: str) -> None:
        with (folder / "log").open("w") as self.log:
            super().__init__(folder, **more)


def of_key(signer: Signer, service: str = "sts") -> Any:
    return client(signer.url, service, signer.access_key, signer.secret)


def client(url: str, service: str, key: str, secret: str, token: str | None = None) -> Any:
    return boto3.client(
        service,
        endpoint_url=url,
        region_name="us-east-1",
        aws_access_key_id=key,
        aws_secret_access_key=secret,
        aws_session_token=token,
        config=Config(retries={"max_attempts": 0}),
    )


def within(gateway: Verifying, made: Mapping[str, Any], service: str) -> Any:
    """A client with the credentials of a session."""
    found = made["Credentials"]
    return client(
        gateway.url,
        service,
        found["AccessKeyId"],
        found["SecretAccessKey"],
        found["SessionToken"],
    )


def role(signer: Signer, name: str = "ada", arn: str = ROLE, **more: Any) -> Any:
    return of_key(signer).assume_role(RoleArn=arn, RoleSessionName=name, **more)


def refusal(call: Any, **members: Any) -> tuple[int, str, str]:
    with pytest.raises(ClientError) as refused:
        call(**members)
    found = refused.value.response
    status: int = found["ResponseMetadata"]["HTTPStatusCode"]
    return status, found["Error"]["Code"], found["Error"]["Message"]


def test_role_session_is_let_in_everywhere(gateway: Verifying, owner: Signer) -> None:
    made = role(owner)
    arn = f"arn:aws:sts::{OWNER}:assumed-role/reader/ada"
    identity = within(gateway, made, "sts").get_caller_identity()
    assert (identity["Arn"], identity["Account"]) == (arn, OWNER)
    assert identity["UserId"] == made["AssumedRoleUser"]["AssumedRoleId"]
    sqs = within(gateway, made, "sqs")
    url = sqs.create_queue(QueueName="everywhere")["QueueUrl"]
    sqs.send_message(QueueUrl=url, MessageBody="x")
    [message] = sqs.receive_message(QueueUrl=url, AttributeNames=["SenderId"])["Messages"]
    assert message["Attributes"]["SenderId"] == identity["UserId"]
    assert within(gateway, made, "sns").create_topic(Name="t")["TopicArn"]
    assert within(gateway, made, "scheduler").list_schedules()["Schedules"] == []
    found = made["Credentials"]
    session = Signer(gateway.url, found["AccessKeyId"], found["SecretAccessKey"], OWNER)
    link = session.presign("GET", "/?Action=ListQueues", token=found["SessionToken"])
    assert fetch(gateway.url, link).status == 200
    assert fetch(gateway.url, session.presign("GET", "/?Action=ListQueues")).status == 403


def test_session_of_a_user_is_the_user(gateway: Verifying, owner: Signer) -> None:
    made = of_key(owner).get_session_token(DurationSeconds=900)
    sts = within(gateway, made, "sts")
    assert sts.get_caller_identity()["Arn"] == f"arn:aws:iam::{OWNER}:user/{owner.access_key}"
    assert refusal(sts.get_session_token) == (
        403,
        "AccessDenied",
        "Cannot call GetSessionToken with session credentials",
    )
    assert sts.assume_role(RoleArn=ROLE, RoleSessionName="from-user")["Credentials"]
    administrator = of_key(gateway.first).get_session_token()
    # The pages of operators are administrators' alone.
    found = administrator["Credentials"]
    session = Signer(gateway.url, found["AccessKeyId"], found["SecretAccessKey"], OWNER)
    token = {"X-Amz-Security-Token": found["SessionToken"]}
    assert session.ask("GET", "/v1/keys", token).status == 200


def test_profile_with_a_role_works(gateway: Verifying, owner: Signer, tmp_path: Path) -> None:
    (tmp_path / "config").write_text(PROFILE.format(owner, ROLE))
    environment = {
        "AWS_CONFIG_FILE": str(tmp_path / "config"),
        "AWS_PROFILE": "role",
        "AWS_ENDPOINT_URL": gateway.url,
        "AWS_REGION": "us-east-1",
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    ran = subprocess.run(
        [sys.executable, "-c", IN_PROFILE], env=environment, capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.split()[0] == f"arn:aws:sts::{OWNER}:assumed-role/reader/nightly"


@pytest.mark.parametrize("service", ["sqs", "sns", "scheduler", "sts"])
def test_wrong_parts_of_credentials_are_refused(
    gateway: Verifying, owner: Signer, service: str
) -> None:
    found, other = role(owner)["Credentials"], role(owner, "other")["Credentials"]
    key, secret, token = found["AccessKeyId"], found["SecretAccessKey"], found["SessionToken"]
    call = {
        "sqs": "list_queues",
        "sns": "list_topics",
        "scheduler": "list_schedules",
        "sts": "get_caller_identity",
    }[service]
    unknown = "UnrecognizedClientException" if service == "scheduler" else INVALID
    wrong = "InvalidSignatureException" if service == "scheduler" else "SignatureDoesNotMatch"
    middle = len(token) // 2
    changed = token[:middle] + ("A" if token[middle] != "A" else "B") + token[middle + 1 :]
    for given, expected in (
        ((key, secret, None), unknown),
        ((key, secret, "x"), unknown),
        ((key, secret, changed), unknown),
        ((key, secret, other["SessionToken"]), unknown),
        ((other["AccessKeyId"], secret, token), unknown),
        ((key, "wrong", token), wrong),
        ((key, other["SecretAccessKey"], token), wrong),
        ((owner.access_key, owner.secret, token), unknown),
    ):
        status, code, _ = refusal(getattr(client(gateway.url, service, *given), call))
        assert (status, code) == (403, expected), given[0]


def test_token_has_to_be_signed(gateway: Verifying, owner: Signer) -> None:
    found = role(owner)["Credentials"]
    session = Signer(gateway.url, found["AccessKeyId"], found["SecretAccessKey"], OWNER)
    token = {"X-Amz-Security-Token": found["SessionToken"]}
    signed = session.sign("GET", "/v1/queues", token)
    assert send(gateway.url, "GET", "/v1/queues", signed).status == 200
    unsigned = session.sign("GET", "/v1/queues", {}) | token
    assert send(gateway.url, "GET", "/v1/queues", unsigned).status == 403


def test_session_expires(gateway: Verifying, owner: Signer) -> None:
    made = role(owner, DurationSeconds=900)
    clients = {name: within(gateway, made, name) for name in ("sqs", "sns", "scheduler", "sts")}
    assert clients["sqs"].list_queues()
    gateway.first.ask("POST", "/_admin/clock", {}, b'{"advance_seconds": 901}')
    for name, call in (
        ("sqs", "list_queues"),
        ("sns", "list_topics"),
        ("scheduler", "list_schedules"),
        ("sts", "get_caller_identity"),
    ):
        expected = "ExpiredTokenException" if name == "scheduler" else "ExpiredToken"
        assert refusal(getattr(clients[name], call)) == (
            403,
            expected,
            "The security token included in the request is expired",
        )
    # The key that began it is not affected.
    assert of_key(owner, "sqs").list_queues()


def test_session_ends_with_its_key(gateway: Verifying) -> None:
    signer = ready(gateway.signer(OWNER, name="ends"))
    sqs = within(gateway, role(signer), "sqs")
    user = within(gateway, of_key(signer).get_session_token(), "sqs")
    chained = within(gateway, role(signer), "sts")
    deep = within(gateway, chained.assume_role(RoleArn=ROLE, RoleSessionName="deep"), "sqs")
    assert all(one.list_queues() for one in (sqs, user, deep))
    gateway.keys("disable", str(signer.key_id))
    for one in (sqs, user, deep):
        until(lambda: _is_refused(one), lambda refused: refused)  # noqa: B023
    gateway.keys("enable", str(signer.key_id))
    until(lambda: _is_refused(sqs), lambda refused: not refused)
    gateway.keys("rotate", str(signer.key_id), "--overlap", "1h")
    # The secret before is good for a while, and so are its sessions.
    until(lambda: _is_refused(of_key(signer, "sqs")), lambda refused: not refused)
    assert sqs.list_queues()
    gateway.first.ask("POST", "/_admin/clock", {}, b'{"advance_seconds": 3500}')
    assert not _is_refused(user)
    gateway.first.ask("POST", "/_admin/clock", {}, b'{"advance_seconds": 200}')
    assert refusal(user.list_queues)[1] == INVALID
    gateway.keys("delete", str(signer.key_id))


def _is_refused(sqs: Any) -> bool:
    try:
        sqs.list_queues()
    except ClientError as error:
        return bool(error.response["Error"]["Code"] == INVALID)
    return False


def test_session_policy_bounds_what_its_key_may(
    gateway: Verifying, owner: Signer, tmp_path: Path
) -> None:
    path = tmp_path / "policy.json"
    mine = f"arn:aws:sqs:*:{OWNER}:bound-*"
    path.write_text(document(allow("sqs:*", mine), allow("sts:AssumeRole", ROLE)))
    bound = ready(gateway.signer(OWNER, "--policy", str(path), name="bound"))
    for name in ("bound-a", "bound-b", "unbound"):
        of_key(owner, "sqs").create_queue(QueueName=name)

    def url(name: str) -> str:
        return f"{gateway.url}/{OWNER}/{name}"

    # Wider than the key, and narrower.
    sends = document(allow("sqs:SendMessage"), allow("sts:AssumeRole"))
    made = role(bound, Policy=sends)
    assert 0 < made["PackedPolicySize"] <= 100
    sqs = within(gateway, made, "sqs")
    assert sqs.send_message(QueueUrl=url("bound-a"), MessageBody="x")
    status, code, text = refusal(sqs.receive_message, QueueUrl=url("bound-a"))
    assert (status, code) == (403, "AccessDenied")
    assert text == (
        f"User: arn:aws:sts::{OWNER}:assumed-role/reader/ada is not authorized to perform: "
        f"sqs:receivemessage on resource: arn:aws:sqs:us-east-1:{OWNER}:bound-a because no session "
        "policy allows the sqs:receivemessage action"
    )
    text = refusal(sqs.send_message, QueueUrl=url("unbound"), MessageBody="x")[2]
    assert "because no identity-based policy allows" in text
    assert refusal(sqs.list_queues)[1] == "AccessDenied"
    # A session begun in it is bounded by both policies.
    deny = document(allow("sqs:*"), allow("sqs:SendMessage", f"{mine[:-1]}b", Effect="Deny"))
    chained = within(gateway, made, "sts").assume_role(
        RoleArn=ROLE, RoleSessionName="deep", Policy=deny
    )
    deep = within(gateway, chained, "sqs")
    assert deep.send_message(QueueUrl=url("bound-a"), MessageBody="x")
    text = refusal(deep.send_message, QueueUrl=url("bound-b"), MessageBody="x")[2]
    assert text.endswith("with an explicit deny in a session policy")
    assert refusal(deep.receive_message, QueueUrl=url("bound-a"))[1] == "AccessDenied"
    # The policy of a queue does not reach beyond that of the session.
    everybody = json.loads(document({**allow("sqs:*"), "Principal": "*"}))
    of_key(owner, "sqs").set_queue_attributes(
        QueueUrl=url("bound-b"), Attributes={"Policy": json.dumps(everybody)}
    )
    assert refusal(sqs.receive_message, QueueUrl=url("bound-b"))[1] == "AccessDenied"
    # Without the right nobody assumes a role.
    other = f"arn:aws:iam::{OWNER}:role/writer"
    status, code, text = refusal(of_key(bound).assume_role, RoleArn=other, RoleSessionName="ada")
    assert (status, code) == (403, "AccessDenied")
    assert f"sts:assumerole on resource: {other}" in text


def test_policies_name_roles_and_sessions(gateway: Verifying, owner: Signer) -> None:
    sqs = of_key(owner, "sqs")
    for number, named in enumerate((ROLE, f"arn:aws:sts::{OWNER}:assumed-role/reader/ada")):
        url = sqs.create_queue(QueueName=f"named-{number}")["QueueUrl"]
        denied = {"Effect": "Deny", "Principal": {"AWS": named}, "Action": "sqs:SendMessage"}
        arn = f"arn:aws:sqs:us-east-1:{OWNER}:named-{number}"
        attributes = {"Policy": document({**denied, "Resource": arn})}
        sqs.set_queue_attributes(QueueUrl=url, Attributes=attributes)
        ada = within(gateway, role(owner), "sqs")
        assert refusal(ada.send_message, QueueUrl=url, MessageBody="x")[1] == "AccessDenied"
        assert sqs.send_message(QueueUrl=url, MessageBody="x")
        bob = within(gateway, role(owner, "bob"), "sqs")
        if number:
            assert bob.send_message(QueueUrl=url, MessageBody="x")
        else:
            assert refusal(bob.send_message, QueueUrl=url, MessageBody="x")[0] == 403


def test_roles_of_other_accounts_are_refused(gateway: Verifying, owner: Signer) -> None:
    theirs = f"arn:aws:iam::{STRANGER}:role/reader"
    status, code, text = refusal(of_key(owner).assume_role, RoleArn=theirs, RoleSessionName="ada")
    assert (status, code) == (403, "AccessDenied")
    user = f"arn:aws:iam::{OWNER}:user/{owner.access_key}"
    assert text == (
        f"User: {user} is not authorized to perform: sts:AssumeRole on resource: {theirs}"
    )
    # Administrators may: the session is that account's, and no administrator's.
    made = role(gateway.first, arn=theirs)
    assert within(gateway, made, "sts").get_caller_identity()["Account"] == STRANGER
    url = within(gateway, made, "sqs").create_queue(QueueName="theirs")["QueueUrl"]
    assert f"/{STRANGER}/" in url
    found = made["Credentials"]
    session = Signer(gateway.url, found["AccessKeyId"], found["SecretAccessKey"], STRANGER)
    token = {"X-Amz-Security-Token": found["SessionToken"]}
    assert session.ask("GET", "/v1/keys", token).status == 403


def test_what_cannot_be_a_session_is_refused(gateway: Verifying, owner: Signer) -> None:
    sts = of_key(owner)
    wanted = {"RoleSessionName": "ada"}
    arn = f"arn:aws:iam::{OWNER}:user/reader"
    assert refusal(sts.assume_role, RoleArn=arn, **wanted) == (
        400,
        "ValidationError",
        f"{arn} is invalid",
    )
    managed = [{"arn": "arn:aws:iam::aws:policy/ReadOnlyAccess"}]
    found = refusal(sts.assume_role, RoleArn=ROLE, PolicyArns=managed, **wanted)
    assert found[:2] == (400, "ValidationError")
    principal = document({**allow("sqs:*"), "Principal": "*"})
    found = refusal(sts.assume_role, RoleArn=ROLE, Policy=principal, **wanted)
    assert found[1:] == (
        "MalformedPolicyDocument",
        "Policy document should not specify a principal.",
    )
    chained = within(gateway, role(owner), "sts")
    found = refusal(chained.assume_role, RoleArn=ROLE, DurationSeconds=3601, **wanted)
    assert "1 hour session limit for roles assumed by role chaining" in found[2]
    claims = base64.urlsafe_b64encode(b'{"iss": "https://issuer"}').decode()
    for token, text in (
        (f"e30.{claims}.e30", "No OpenIDConnect provider found in your account for https://issuer"),
        ("any token", "The ID Token provided is not a valid JWT."),
    ):
        status, code, said = refusal(
            sts.assume_role_with_web_identity, RoleArn=ROLE, WebIdentityToken=token, **wanted
        )
        assert (status, code) == (400, "InvalidIdentityToken")
        assert said.startswith(text)


def test_access_keys_name_their_account(gateway: Verifying, owner: Signer) -> None:
    sts = of_key(owner)
    temporary = role(owner)["Credentials"]["AccessKeyId"]
    for key, account in (
        (owner.access_key, OWNER),
        (temporary, OWNER),
        (gateway.first.access_key, gateway.first.account),
        ("AKIAIOSFODNN7EXAMPLE", "000000000000"),
    ):
        assert sts.get_access_key_info(AccessKeyId=key)["Account"] == account


def test_sessions_go_on_while_the_master_key_is_exchanged(tmp_path: Path) -> None:
    """Gateways have the first key, both, or the second alone, and meet each other's sessions."""
    another = "ab" * 32
    both = f"{MASTER_KEY} {another}"
    with Verifying(tmp_path) as old:
        before = role(old.first)
        with Verifying(tmp_path, dsn=old.dsn, QUEUEGATE_MASTER_KEY=both) as between:
            begun = role(between.first)
            for gateway, made in ((between, before), (old, begun), (between, begun)):
                assert within(gateway, made, "sqs").list_queues()
            between.keys("rotate-master")
            after = role(between.first)
            for made in (before, begun, after):
                assert within(between, made, "sqs").list_queues()
        with Verifying(tmp_path, dsn=old.dsn, QUEUEGATE_MASTER_KEY=another) as new:
            assert within(new, after, "sqs").list_queues()
            assert refusal(within(new, before, "sqs").list_queues)[1] == INVALID


def test_logs_show_no_token_and_no_secret(tmp_path: Path) -> None:
    """The audit and the log at its finest name the access key alone."""
    with Logging(tmp_path, QUEUEGATE_LOG_LEVEL="debug", QUEUEGATE_AUDIT="stderr") as gateway:
        found = role(gateway.first)["Credentials"]
        for service, call in (("sqs", "list_queues"), ("sts", "get_caller_identity")):
            given = found["AccessKeyId"], found["SecretAccessKey"], found["SessionToken"]
            getattr(client(gateway.url, service, *given), call)()
            refusal(getattr(client(gateway.url, service, given[0], "wrong", given[2]), call))
    said = (tmp_path / "log").read_text()
    assert "sts:AssumeRole" in said
    assert found["SessionToken"][:40] not in said
    assert found["SecretAccessKey"] not in said
    assert found["AccessKeyId"] in said
