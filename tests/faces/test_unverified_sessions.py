"""Temporary credentials where signatures are not verified: any role, any token, any secret."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import boto3  # type: ignore[import-untyped]
import pytest
from botocore import UNSIGNED  # type: ignore[import-untyped]
from botocore.config import Config  # type: ignore[import-untyped]
from botocore.exceptions import ClientError  # type: ignore[import-untyped]

from tests.faces.clients import new_account
from tests.faces.servers import Server
from tests.faces.signing import send

ROLE_ACCOUNT = "777788889999"
ROLE = f"arn:aws:iam::{ROLE_ACCOUNT}:role/team/reader"
PROFILE = """[profile base]
aws_access_key_id = {account}
aws_secret_access_key = any
[profile role]
role_arn = {role}
role_session_name = nightly
source_profile = base
"""
IN_PROFILE = """
import boto3
print(boto3.client("sts").get_caller_identity()["Arn"])
print(boto3.client("sqs").create_queue(QueueName="by-profile")["QueueUrl"])
"""


@pytest.fixture(params=["presence", "none"])
def gateway(request: pytest.FixtureRequest, server: Server, relaxed_server: Server) -> Server:
    return server if request.param == "presence" else relaxed_server


def client(server: Server, service: str, key: str, token: str | None = None, **more: Any) -> Any:
    return boto3.client(
        service,
        endpoint_url=server.url,
        region_name="eu-west-1",
        aws_access_key_id=key,
        aws_secret_access_key="any",
        aws_session_token=token,
        config=Config(retries={"max_attempts": 0}, parameter_validation=False, **more),
    )


def signed_by(server: Server, service: str, credentials: dict[str, Any], **more: Any) -> Any:
    return client(server, service, credentials["AccessKeyId"], credentials["SessionToken"], **more)


def code(call: Any, **members: Any) -> tuple[str, str]:
    with pytest.raises(ClientError) as refused:
        call(**members)
    error = refused.value.response["Error"]
    return error["Code"], error["Message"]


def test_role_session_acts_in_the_account_of_the_role(gateway: Server) -> None:
    sts = client(gateway, "sts", new_account())
    made = sts.assume_role(RoleArn=ROLE, RoleSessionName="ada@x", SourceIdentity="ada")
    credentials = made["Credentials"]
    left = credentials["Expiration"] - datetime.now(UTC)
    assert timedelta(minutes=59) < left
    assert credentials["AccessKeyId"].startswith("ASIA")
    assert len(credentials["AccessKeyId"]) == 20
    assert made["SourceIdentity"] == "ada"
    arn = f"arn:aws:sts::{ROLE_ACCOUNT}:assumed-role/reader/ada@x"
    assert made["AssumedRoleUser"]["Arn"] == arn
    identity = signed_by(gateway, "sts", credentials).get_caller_identity()
    assert identity["Arn"] == arn
    assert identity["UserId"] == made["AssumedRoleUser"]["AssumedRoleId"]
    assert identity["Account"] == ROLE_ACCOUNT
    # Without its token the key is a user's.
    alone = client(gateway, "sts", credentials["AccessKeyId"]).get_caller_identity()
    assert alone["Account"] == ROLE_ACCOUNT
    assert alone["Arn"] == f"arn:aws:iam::{ROLE_ACCOUNT}:user/{credentials['AccessKeyId']}"
    sqs = signed_by(gateway, "sqs", credentials)
    url = sqs.create_queue(QueueName=f"of-role-{new_account()}")["QueueUrl"]
    assert f"/{ROLE_ACCOUNT}/" in url
    sqs.send_message(QueueUrl=url, MessageBody="x")
    assert sqs.receive_message(QueueUrl=url)["Messages"][0]["Body"] == "x"


def test_session_token_is_the_callers(gateway: Server) -> None:
    account = new_account()
    credentials = client(gateway, "sts", account).get_session_token()["Credentials"]
    assert credentials["Expiration"] - datetime.now(UTC) > timedelta(hours=11)
    identity = signed_by(gateway, "sts", credentials).get_caller_identity()
    assert identity["Account"] == account
    assert identity["Arn"] == f"arn:aws:iam::{account}:user/{account}"


def _jwt(claims: dict[str, Any]) -> str:
    text = base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")
    return f"e30.{text}.e30"


@pytest.mark.parametrize(
    "token", ["x", "a.b.c", _jwt({"iss": "https://i", "sub": "subject", "aud": "us"})]
)
def test_any_web_identity_token_will_do_without_a_signature(gateway: Server, token: str) -> None:
    sts = client(gateway, "sts", "x", signature_version=UNSIGNED)
    made = sts.assume_role_with_web_identity(
        RoleArn=ROLE, RoleSessionName="web", WebIdentityToken=token, DurationSeconds=900
    )
    assert made["AssumedRoleUser"]["Arn"].endswith(":assumed-role/reader/web")
    if "." in token and token != "a.b.c":
        found = made["Provider"], made["SubjectFromWebIdentityToken"], made["Audience"]
        assert found == ("https://i", "subject", "us")
    queues = signed_by(gateway, "sqs", made["Credentials"])
    assert ROLE_ACCOUNT in queues.create_queue(QueueName="web")["QueueUrl"]


def test_access_keys_name_their_account(gateway: Server) -> None:
    account = new_account()
    sts = client(gateway, "sts", account)
    temporary = sts.get_session_token()["Credentials"]["AccessKeyId"]
    for key, owner in (
        (temporary, account),
        ("222222222222", "222222222222"),
        ("AKIAIOSFODNN7EXAMPLE", "000000000000"),
        ("ASIAQ3EGQ2BL6PAHYUXT", "000000000000"),
    ):
        assert sts.get_access_key_info(AccessKeyId=key)["Account"] == owner


def test_what_the_model_refuses_is_refused(server: Server) -> None:
    sts = client(server, "sts", new_account())
    role = {"RoleArn": ROLE, "RoleSessionName": "name"}
    for call, members, text in (
        (sts.assume_role, {"RoleArn": ROLE}, "Value null at 'roleSessionName'"),
        (sts.assume_role, role | {"RoleSessionName": "a b"}, r"expression pattern: [\w+=,.@-]*"),
        (sts.assume_role, role | {"DurationSeconds": 899}, "greater than or equal to 900"),
        (sts.assume_role, role | {"DurationSeconds": 43_201}, "less than or equal to 43200"),
        (sts.get_session_token, {"DurationSeconds": 129_601}, "less than or equal to 129600"),
        (sts.get_access_key_info, {"AccessKeyId": "a-b"}, r"expression pattern: [\w]*"),
        (sts.assume_role_with_web_identity, role, "Value null at 'webIdentityToken'"),
    ):
        name, said = code(call, **members)
        assert name == "ValidationError"
        assert said.startswith("1 validation error detected: ")
        assert text in said
    assert code(sts.assume_role, **role, Policy="{") == (
        "MalformedPolicyDocument",
        "Syntax errors in policy. It is no JSON.",
    )
    large = json.dumps(
        {
            "Version": "2012-10-17",
            "Statement": [
                {"Effect": "Allow", "Action": "sqs:*", "Resource": "arn:aws:sqs:*:*:" + "x" * 2_100}
            ],
        }
    )
    name, said = code(sts.assume_role, **role, Policy=large)
    assert name == "PackedPolicyTooLarge"
    assert said.startswith("Packed policy consumes 10")


def test_profile_with_a_role_works(gateway: Server, tmp_path: Path) -> None:
    (tmp_path / "config").write_text(PROFILE.format(account=new_account(), role=ROLE))
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
    arn, url = ran.stdout.split()
    assert arn == f"arn:aws:sts::{ROLE_ACCOUNT}:assumed-role/reader/nightly"
    assert url.endswith(f"/{ROLE_ACCOUNT}/by-profile")


@pytest.mark.parametrize(
    "token", ["x", "W10=", "é", base64.urlsafe_b64encode(b"[1,2,3,4]").decode()]
)
def test_token_that_is_none_is_ignored(server: Server, token: str) -> None:
    account = new_account()
    key = client(server, "sts", account).get_session_token()["Credentials"]["AccessKeyId"]
    credential = f"Credential={key}/20260101/us-east-1/sts/aws4_request"
    headers = {
        "Authorization": f"AWS4-HMAC-SHA256 {credential}, SignedHeaders=host, Signature=x",
        "X-Amz-Security-Token": token.encode().decode("latin-1"),
    }
    answer = send(server.url, "GET", "/?Action=GetCallerIdentity", headers)
    assert answer.status == 200
    assert f":user/{key}" in answer.text
