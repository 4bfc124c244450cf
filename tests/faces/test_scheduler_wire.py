"""EventBridge Scheduler on a bare socket: paths, spellings, methods, headers; and STS."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from urllib.parse import quote

import pytest

from tests.faces.clients import authorization, new_account, read_xml
from tests.faces.connections import Answer, Connection, request_bytes
from tests.faces.scheduler_client import Scheduler
from tests.faces.servers import Server

FORM = "application/x-www-form-urlencoded; charset=utf-8"
IDENTITY = "Action=GetCallerIdentity&Version=2011-06-15"


class Raw:
    """Requests of one account as they are written."""

    def __init__(self, url: str, service: str = "scheduler") -> None:
        self.account = new_account()
        self.connection = Connection(url)
        self.headers = {
            "Host": self.connection.host,
            "Authorization": authorization(self.account, service=service),
        }

    def ask(self, method: str, target: str, body: object = None, **headers: str) -> Answer:
        """``body`` is JSON unless it is bytes; a header of None is left out."""
        encoded = body if isinstance(body, bytes) else b"" if body is None else _json(body)
        own = self.headers | {"Content-Type": "application/json"} | headers
        self.connection.send(request_bytes(method, target, own, encoded))
        return self.connection.answer(to_head=method == "HEAD")

    def schedule(self, **changes: object) -> dict[str, object]:
        return {
            "ScheduleExpression": "at(2190-01-01T00:00:00)",
            "FlexibleTimeWindow": {"Mode": "OFF"},
            "Target": {
                "Arn": f"arn:aws:sqs:us-east-1:{self.account}:q",
                "RoleArn": "arn:aws:iam::123456789012:role/r",
            },
            **changes,
        }

    @property
    def group_arn(self) -> str:
        return f"arn:aws:scheduler:us-east-1:{self.account}:schedule-group/g"


def _json(value: object) -> bytes:
    return json.dumps(value).encode()


@pytest.fixture
def raw(server: Server) -> Iterator[Raw]:
    client = Raw(server.url)
    yield client
    client.connection.close()


@pytest.fixture
def sts(server: Server) -> Iterator[Raw]:
    client = Raw(server.url, "sts")
    yield client
    client.connection.close()


def error(answer: Answer) -> tuple[int, str, str]:
    """Status, type and text of a refusal."""
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["x-amzn-requestid"]
    body = json.loads(answer.body)
    assert list(body) == ["Message"]
    return answer.status, answer.headers["x-amzn-errortype"], body["Message"]


def test_headers_and_seconds_of_a_success(raw: Raw) -> None:
    answer = raw.ask("POST", "/schedules/s", raw.schedule(EndDate=4102444800.5))
    assert answer.status == 200
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["x-amzn-requestid"]
    found = json.loads(raw.ask("GET", "/schedules/s").body)
    assert found["EndDate"] == 4102444800.5
    assert isinstance(found["CreationDate"], float | int)
    assert raw.ask("DELETE", "/schedules/s").body == b"{}"


def test_times_may_be_texts_and_unknown_members_are_ignored(raw: Raw) -> None:
    members = raw.schedule(EndDate="2100-01-01T00:00:00Z", Odd={"a": 1}, Description=None)
    assert raw.ask("POST", "/schedules/s", members).status == 200
    found = json.loads(raw.ask("GET", "/schedules/s").body)
    assert found["EndDate"] == 4102444800
    assert "Description" not in found


def test_the_name_in_the_path_counts(raw: Raw) -> None:
    assert raw.ask("POST", "/schedules/path", raw.schedule(Name="body")).status == 200
    assert raw.ask("GET", "/schedules/path").status == 200
    assert raw.ask("GET", "/schedules/body").status == 404
    assert raw.ask("GET", "/schedules/p%61th").status == 200
    assert json.loads(raw.ask("GET", "/schedules/path?x=1").body)["Name"] == "path"


def test_an_encoded_slash_is_part_of_a_name(raw: Raw) -> None:
    status, kind, text = error(raw.ask("GET", "/schedules/a%2Fb"))
    assert (status, kind) == (400, "ValidationException")
    assert "Value 'a/b' at 'name' failed to satisfy constraint" in text


@pytest.mark.parametrize(
    ("method", "target"),
    [
        ("GET", "/schedules/a/b"),
        ("GET", "/schedules/"),
        ("POST", "/schedulesx"),
        ("GET", "/schedule-groups/a/b"),
        ("GET", "/tags"),
        ("GET", "/tags/"),
        ("GET", "/"),
        ("POST", "/"),
        ("GET", "/123456789012/q"),
        ("GET", "/%73chedules"),
    ],
)
def test_paths_that_are_none(raw: Raw, method: str, target: str) -> None:
    status, kind, _ = error(raw.ask(method, target))
    assert (status, kind) == (404, "UnknownOperationException")


@pytest.mark.parametrize(
    ("method", "target", "allowed"),
    [
        ("PATCH", "/schedules/a", "POST, PUT, GET, DELETE"),
        ("POST", "/schedules", "GET"),
        ("DELETE", "/schedule-groups", "GET"),
        ("PUT", "/tags/x", "POST, GET, DELETE"),
    ],
)
def test_methods_that_a_path_has_not(raw: Raw, method: str, target: str, allowed: str) -> None:
    answer = raw.ask(method, target)
    assert error(answer)[:2] == (405, "UnknownOperationException")
    assert answer.headers["allow"] == allowed
    assert raw.ask("HEAD", "/schedules").status == 405


def test_two_spellings_of_the_group(raw: Raw) -> None:
    raw.ask("POST", "/schedule-groups/g", {})
    raw.ask("POST", "/schedules/s", raw.schedule(GroupName="g"))
    assert raw.ask("GET", "/schedules/s?groupName=g").status == 200
    for wrong in ("GroupName", "ScheduleGroup", "groupname"):
        assert raw.ask("GET", f"/schedules/s?{wrong}=g").status == 404

    def listed(query: str) -> int:
        return len(json.loads(raw.ask("GET", f"/schedules?{query}").body)["Schedules"])

    assert listed("ScheduleGroup=g") == 1
    assert listed("ScheduleGroup=default") == 0
    assert listed("groupName=default") == 1


@pytest.mark.parametrize("safe", ["", ":", ":/"])
def test_arns_of_groups_in_the_path(raw: Raw, safe: str) -> None:
    raw.ask("POST", "/schedule-groups/g", {})
    path = f"/tags/{quote(raw.group_arn, safe=safe)}"
    tags = [{"Key": key, "Value": "v"} for key in ("a", "b c", "d+e", "ż", "keep")]
    assert raw.ask("POST", path, {"Tags": tags}).body == b"{}"
    keys = "TagKeys=a&TagKeys=b%20c&TagKeys=d%2Be&TagKeys=%C5%BC"
    assert raw.ask("DELETE", f"{path}?{keys}").body == b"{}"
    found = json.loads(raw.ask("GET", path).body)
    assert found == {"Tags": [{"Key": "keep", "Value": "v"}]}
    status, _, text = error(raw.ask("DELETE", path))
    assert (status, "Value null at 'tagKeys'" in text) == (400, True)


@pytest.mark.parametrize(
    ("target", "body"),
    [
        ("/schedules/s", b"{"),
        ("/schedules/s", b"[]"),
        ("/schedules/s", b'"x"'),
        ("/schedules/s", b'{"ScheduleExpression": 5}'),
        ("/schedules/s", b'{"StartDate": "soon"}'),
        ("/schedules/s", b'{"Target": "arn"}'),
        ("/schedules/s", b"\xff"),
        ("/schedules/%ff", b"{}"),
        ("/schedules/s", b'{"a":' * 3000),
    ],
)
def test_what_cannot_be_read(raw: Raw, target: str, body: bytes) -> None:
    status, kind, _ = error(raw.ask("POST", target, body))
    assert (status, kind) == (400, "SerializationException")


def test_numbers_in_the_query_string(raw: Raw) -> None:
    status, kind, _ = error(raw.ask("GET", "/schedules?MaxResults=many"))
    assert (status, kind) == (400, "SerializationException")


def test_an_empty_body_has_no_members(raw: Raw) -> None:
    assert raw.ask("POST", "/schedule-groups/g").status == 200
    status, kind, text = error(raw.ask("POST", "/schedules/s"))
    assert (status, kind) == (400, "ValidationException")
    assert text.startswith("3 validation errors detected: Value null at 'scheduleExpression'")


@pytest.mark.parametrize("content_type", ["application/x-amz-json-1.1", "text/plain", FORM, ""])
def test_the_content_type_does_not_count(raw: Raw, content_type: str) -> None:
    headers = {"Content-Type": content_type}
    assert raw.ask("POST", "/schedules/s", raw.schedule(), **headers).status == 200


def test_without_credentials(server: Server, raw: Raw) -> None:
    raw.headers.pop("Authorization")
    for method, target in (
        ("GET", "/schedules"),
        ("POST", "/schedule-groups/g"),
        ("GET", "/tags/x"),
    ):
        status, kind, _ = error(raw.ask(method, target))
        assert (status, kind) == (403, "MissingAuthenticationTokenException")
    scope = quote(f"{raw.account}/20260101/us-east-1/scheduler/aws4_request", safe="")
    presigned = (
        f"/schedules?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential={scope}"
        "&X-Amz-Date=20260101T000000Z&X-Amz-Expires=60&X-Amz-SignedHeaders=host"
        f"&X-Amz-Signature={'0' * 64}"
    )
    assert raw.ask("GET", presigned).status == 200


def test_where_nobody_needs_credentials(relaxed_server: Server) -> None:
    client = Raw(relaxed_server.url)
    client.headers.pop("Authorization")
    assert json.loads(client.ask("GET", "/schedules").body) == {"Schedules": []}
    client.connection.close()


def test_a_body_that_is_too_large(raw: Raw) -> None:
    size = 8 * 1024 * 1024 + 1
    headers = raw.headers | {"Content-Length": str(size)}
    raw.connection.send(request_bytes("POST", "/schedules/s", headers))
    # The gateway hangs up when it has seen enough.
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        raw.connection.send(b"x" * size)
    assert error(raw.connection.answer())[:2] == (413, "ValidationException")


def test_paths_of_queues_stay_theirs(server: Server) -> None:
    client = Raw(server.url, "sqs")
    answer = client.ask("GET", "/schedules/s")
    assert "x-amzn-errortype" not in answer.headers
    client.connection.close()


def test_actions_are_counted(server: Server) -> None:
    client = Scheduler(server.url)
    client.refusal("update_schedule", **client.members())
    sample = 'queuegate_actions_total{action="UpdateSchedule",status="404"}'
    assert server.metric(sample) >= 1
    client.close()


def test_caller_identity_of_boto3(server: Server) -> None:
    client = Scheduler(server.url)
    found = client.client("sts").get_caller_identity()
    assert found.pop("ResponseMetadata")["HTTPStatusCode"] == 200
    assert found == {
        "UserId": client.account,
        "Account": client.account,
        "Arn": f"arn:aws:iam::{client.account}:user/{client.account}",
    }
    client.close()


def test_caller_identity_on_the_wire(sts: Raw) -> None:
    posted = sts.ask("POST", "/", IDENTITY.encode(), **{"Content-Type": FORM})
    fetched = sts.ask("GET", f"/?{IDENTITY}")
    for answer in (posted, fetched):
        assert answer.status == 200
        assert answer.headers["content-type"] == "text/xml"
        request_id = answer.headers["x-amzn-requestid"]
        assert answer.text == (
            '<GetCallerIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/">'
            f"<GetCallerIdentityResult><UserId>{sts.account}</UserId><Account>{sts.account}"
            f"</Account><Arn>arn:aws:iam::{sts.account}:user/{sts.account}</Arn></GetCallerIdentityResult>"
            f"<ResponseMetadata><RequestId>{request_id}</RequestId></ResponseMetadata>"
            "</GetCallerIdentityResponse>"
        )


@pytest.mark.parametrize(
    ("query", "status", "code"),
    [
        ("Action=AssumeRoleWithSAML&Version=2011-06-15", 400, "InvalidAction"),
        ("Version=2011-06-15", 400, "InvalidAction"),
        ("Action=SendMessage&Version=2011-06-15", 400, "InvalidAction"),
        ("Action=%ff", 400, "MalformedInput"),
    ],
)
def test_other_actions_of_sts(sts: Raw, query: str, status: int, code: str) -> None:
    answer = sts.ask("GET", f"/?{query}")
    assert answer.status == status
    assert read_xml(answer.body)["Error"]["Code"] == code


def test_caller_identity_needs_credentials(sts: Raw) -> None:
    sts.headers.pop("Authorization")
    answer = sts.ask("GET", f"/?{IDENTITY}")
    assert answer.status == 403
    found = read_xml(answer.body)
    assert found["Error"]["Code"] == "MissingAuthenticationToken"
    assert found["@xmlns"] == "https://sts.amazonaws.com/doc/2011-06-15/"
