"""Clients of other services that were sent here: boto3 shows which one, and what to set."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import boto3  # type: ignore[import-untyped]
import pytest
from botocore.config import Config  # type: ignore[import-untyped]
from botocore.exceptions import ClientError  # type: ignore[import-untyped]

from tests.faces.clients import WIRES, Sqs, authorization
from tests.faces.connections import Answer, Connection, fetch, request_bytes
from tests.faces.servers import Server
from tests.faces.sns_client import PUBLISH_WIRES, Sns

TEXT = (
    "This request is signed for {}. Queuegate serves sqs, sns, scheduler and sts: set "
    "AWS_ENDPOINT_URL_SQS (or _SNS, _SCHEDULER, _STS) instead of AWS_ENDPOINT_URL."
)

# (client, what it signs for, a call). JSON, rest-json at several paths, rest-xml, forms, CBOR.
CALLS: list[tuple[str, str, Callable[[Any], object]]] = [
    ("dynamodb", "dynamodb", lambda c: c.put_item(TableName="t", Item={"a": {"S": "b"}})),
    ("kinesis", "kinesis", lambda c: c.put_record(StreamName="s", Data=b"x", PartitionKey="k")),
    ("events", "events", lambda c: c.put_events(Entries=[{"Source": "a", "Detail": "{}"}])),
    ("secretsmanager", "secretsmanager", lambda c: c.get_secret_value(SecretId="x")),
    ("ssm", "ssm", lambda c: c.get_parameter(Name="x")),
    ("stepfunctions", "states", lambda c: c.list_state_machines()),
    ("lambda", "lambda", lambda c: c.invoke(FunctionName="f", Payload=b"{}")),
    ("lambda", "lambda", lambda c: c.list_functions()),
    ("eks", "eks", lambda c: c.list_clusters()),
    ("polly", "polly", lambda c: c.describe_voices()),
    ("batch", "batch", lambda c: c.list_jobs(jobQueue="x")),
    ("iam", "iam", lambda c: c.list_users()),
    ("cloudformation", "cloudformation", lambda c: c.list_stacks()),
    ("ec2", "ec2", lambda c: c.describe_instances()),
    ("route53", "route53", lambda c: c.list_hosted_zones()),
    ("eventbridgev2", "events", lambda c: c.list_event_buses()),
    ("s3", "s3", lambda c: c.list_buckets()),
    ("s3", "s3", lambda c: c.list_objects_v2(Bucket="bucket", Prefix="\u00e4%")),
    ("s3", "s3", lambda c: c.get_object(Bucket="123456789012", Key="looks-like-a-queue")),
    ("s3", "s3", lambda c: c.delete_object(Bucket="bucket", Key="a")),
    ("s3", "s3", lambda c: c.put_object(Bucket="bucket", Key="a", Body=b"a=%ff&" * 50_000)),
    ("s3", "s3", lambda c: c.put_object(Bucket="bucket", Key="a", Body=bytes(20_000_000))),
    ("s3", "s3", lambda c: c.upload_fileobj(io.BytesIO(bytes(20_000_000)), "bucket", "a")),
]


def _client(service: str, server: Server, **options: Any) -> Any:
    return boto3.client(
        service,
        endpoint_url=server.url,
        region_name="us-east-1",
        aws_access_key_id="any",
        aws_secret_access_key="any",
        **options,
    )


@pytest.mark.parametrize(("service", "name", "call"), CALLS)
def test_the_sdk_shows_what_to_set_and_does_not_try_again(
    server: Server, service: str, name: str, call: Callable[[Any], object]
) -> None:
    client = _client(service, server)
    sent: list[object] = []
    client.meta.events.register("before-send", lambda **_: sent.append(None))
    with pytest.raises(ClientError) as refused:
        call(client)
    error = refused.value.response["Error"]
    assert TEXT.format(name) in error["Message"]
    assert error["Code"] in {"InvalidAction", "UnknownOperationException"}
    assert 400 <= refused.value.response["ResponseMetadata"]["HTTPStatusCode"] < 500
    assert len(sent) == 1
    client.close()


def test_a_presigned_url_says_it_too(server: Server) -> None:
    client = _client("s3", server, config=Config(signature_version="s3v4"))
    url = client.generate_presigned_url("get_object", Params={"Bucket": "bucket", "Key": "a"})
    client.close()
    assert TEXT.format("s3") in fetch(server.url, url.removeprefix(server.url)).text


@pytest.mark.parametrize("name", ["dynamodb", "execute-api", "es", "x" * 64])
@pytest.mark.parametrize("wire", WIRES)
def test_what_is_ours_is_served_whatever_it_is_signed_for(
    server: Server, wire: str, name: str
) -> None:
    class Odd(Sqs):
        service = "sqs"

        def encode(self, *arguments: Any, **options: Any) -> bytes:
            scope = authorization(self.account, self.region, name)
            return super().encode(*arguments, **options | {"headers": {"Authorization": scope}})

    with Odd(wire, server.url) as sqs:
        url = sqs.create()
        sqs.send(url, "hello")
        assert sqs.bodies(url) == ["hello"]


@pytest.mark.parametrize("wire", PUBLISH_WIRES)
def test_topics_are_served_whatever_it_is_signed_for(server: Server, wire: str) -> None:
    with Sns(wire, server.url) as sns:
        topic = sns.create()
        scope = {"Authorization": authorization(sns.account, service="dynamodb")}
        assert sns.ask("Publish", {"TopicArn": topic, "Message": "a"}, headers=scope).status == 200


def _ask(server: Server, method: str, path: str, body: bytes = b"", **headers: str) -> Answer:
    own = {name.replace("_", "-"): value for name, value in headers.items()}
    with Connection(server.url) as connection:
        connection.send(request_bytes(method, path, {"Host": connection.host} | own, body))
        return connection.answer()


FORM = "application/x-www-form-urlencoded"
OF_S3 = authorization("any", service="s3")


@pytest.mark.parametrize(
    ("method", "path", "body", "headers"),
    [
        ("POST", "/", b"Action=Nothing", {"Authorization": "any", "Content_Type": FORM}),
        ("POST", "/", b"Action=Nothing", {"Content_Type": FORM}),
        (
            "POST",
            "/",
            b"Action=Nothing",
            {"Authorization": authorization("any", service="execute-api"), "Content_Type": FORM},
        ),
        ("POST", "/", b"{}", {"Authorization": "any", "X_Amz_Target": "DynamoDB_20120810.X"}),
        ("GET", "/bucket/key", b"", {"Authorization": "AWS any:signature"}),
        ("GET", "/bucket/key", b"", {"Authorization": OF_S3.replace("/s3/", "/S3<x>/")}),
        ("GET", "/v1/nothing", b"", {"Authorization": "any"}),
        # The action of a form that was not read may be one of ours.
        ("POST", "/", b"x" * 7_000_000, {"Authorization": OF_S3, "Content_Type": FORM}),
    ],
)
def test_whoever_names_no_other_service_is_refused_as_before(
    server: Server, method: str, path: str, body: bytes, headers: dict[str, str]
) -> None:
    answer = _ask(server, method, path, body, **headers)
    assert 400 <= answer.status < 500
    assert "signed for" not in answer.text


def test_an_action_of_ours_that_is_refused_is_refused_as_ours(server: Server) -> None:
    form = b"Action=ReceiveMessage&QueueUrl=nowhere"
    answer = _ask(server, "POST", "/", form, Authorization=OF_S3, Content_Type=FORM)
    assert "NonExistentQueue" in answer.text


def test_a_head_is_refused_without_a_body(server: Server) -> None:
    with Connection(server.url) as connection:
        headers = {"Host": connection.host, "Authorization": OF_S3}
        connection.send(request_bytes("HEAD", "/bucket/key", headers))
        assert connection.answer(to_head=True).status == 400
