"""EventBridge Scheduler: requests that nobody would write get no error of ours and leave no
trace."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote, urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuegate.protocol.scheduler_shapes import PARAMETERS, ROUTES, RULES, SCHEDULER
from queuegate.protocol.shapes import List, Scalar, Shape, Structure
from tests.faces.clients import authorization
from tests.faces.connections import Answer, Connection, request_bytes
from tests.faces.fuzzing import FUZZ, TEXT, VALUES, encoded, with_one_odd
from tests.faces.scheduler_client import Scheduler
from tests.faces.servers import Server

EXPRESSIONS = st.sampled_from(
    [
        "rate(1 minute)",
        "rate(7 days)",
        "cron(0 9 ? * MON-FRI *)",
        "at(2190-01-01T00:00:00)",
        "rate(999999999 days)",
        "rate(99999999999999999999 days)",
        "cron(0 0 31 2 ? *)",
        "cron(0 0 ? * 6L 2199)",
        "cron(0 0 L-31 * ? *)",
        "at(9999-12-31T23:59:59)",
        "at(0001-01-01T00:00:00)",
        "at(2026-02-30T00:00:00)",
        "cron(" + "*," * 120 + ")",
    ]
)
TIMES = st.sampled_from(
    [0, -1e11, 1e11, 253402300799, 253402300800, 1e300, "2100-01-01T00:00:00Z", "x", 4e9, 1.5]
) | st.floats(allow_nan=False, allow_infinity=False)
INPUTS = TEXT | st.sampled_from(
    [
        "{}",
        '{"QueueUrl":"q","MessageBody":"b"}',
        '{"QueueUrl":"q","MessageBody":"\\u0000"}',
        '{"QueueUrl":5}',
        '{"TopicArn":"arn:aws:sns:us-east-1:123456789012:t","Message":"m","MessageAttributes":{"a":{}}}',
        '{"a":' * 2000 + "1" + "}" * 2000,
        "<aws.scheduler.schedule-arn>",
        "x" * 300_000,
    ]
)
ARNS = st.sampled_from(
    [
        "arn:aws:sqs:us-east-1:123456789012:q",
        "arn:aws:sqs:us-east-1:123456789012:p",
        "arn:aws:sqs:us-east-1:123456789012:q.fifo",
        "arn:aws:sns:us-east-1:123456789012:t",
        "arn:aws:scheduler:::aws-sdk:sqs:sendMessage",
        "arn:aws:scheduler:::aws-sdk:sns:publish",
    ]
)
PLAUSIBLE: dict[str, st.SearchStrategy[Any]] = {
    "Name": st.sampled_from(["a", "a", "g", "new", "..", "x" * 64]),
    "GroupName": st.sampled_from(["default", "default", "g", "none"]),
    "NamePrefix": st.sampled_from(["a", "."]),
    "ScheduleExpression": EXPRESSIONS,
    "ScheduleExpressionTimezone": st.sampled_from(["UTC", "Europe/Warsaw", "Asia/Tokyo", "/etc"]),
    "StartDate": st.sampled_from([4e9, 4.1e9 + 0.5, "2100-01-01T00:00:00Z"]) | TIMES,
    "EndDate": st.sampled_from([5e9, 6e9, 253402300799]) | TIMES,
    "State": st.sampled_from(["ENABLED", "DISABLED"]),
    "ActionAfterCompletion": st.sampled_from(["NONE", "DELETE"]),
    "Description": TEXT,
    "KmsKeyArn": st.just("arn:aws:kms:us-east-1:123456789012:key/k"),
    "MessageGroupId": st.sampled_from(["g", "<aws.scheduler.execution-id>"]),
    "MaximumEventAgeInSeconds": st.sampled_from([60, 86_400]),
    "MaximumRetryAttempts": st.sampled_from([0, 185]),
    "Key": st.sampled_from(["k", "l", "x" * 128]),
    "Value": st.sampled_from(["v", "x" * 256]),
    "TagKeys": st.sampled_from(["k", "l", "none"]),
    "Mode": st.sampled_from(["OFF", "FLEXIBLE"]),
    "MaximumWindowInMinutes": st.sampled_from([1, 1440]),
    "Arn": ARNS,
    "RoleArn": st.just("arn:aws:iam::123456789012:role/r"),
    "Input": INPUTS,
    "NextToken": st.sampled_from(["c2NoZWR1bGVzOjEvYQ==", "Z3JvdXBzOmE="]) | TEXT,
    "MaxResults": st.sampled_from([1, 100, 101, "1"]),
    "ClientToken": st.sampled_from(["t", "u"]),
}


def _values(name: str, shape: Shape) -> st.SearchStrategy[Any]:
    """Plausible values of a member."""
    if name in PLAUSIBLE and isinstance(shape, Scalar):
        return PLAUSIBLE[name]
    if isinstance(shape, List):
        return st.lists(_values(name, shape.item), max_size=3)
    if isinstance(shape, Structure):
        members = {
            key: _values(key, member)
            for key, member in shape.members.items()
            if key not in PARAMETERS
        }
        rule = RULES.get(shape)
        required = {key: members.pop(key) for key in (rule.required if rule else ())}
        return st.fixed_dictionaries(required, optional=members)
    return TEXT


class Target:
    """An account with something in it, and a connection that must survive everything."""

    def __init__(self, server: Server) -> None:
        self.scheduler = Scheduler(server.url)
        self.connection = Connection(server.url)
        self.headers = {
            "Host": self.connection.host,
            "Authorization": authorization(self.scheduler.account, service="scheduler"),
            "Content-Type": "application/json",
        }

    def ask(self, method: str, path: str, body: bytes = b"") -> Answer:
        self.connection.send(request_bytes(method, path, self.headers, body))
        return self.connection.answer()

    def read(self, path: str) -> Any:
        answer = self.ask("GET", path)
        assert answer.status == 200, answer
        return json.loads(answer.body)

    def state(self) -> list[Any]:
        found = [self.read("/schedule-groups"), self.read("/schedules")]
        for group in found[0]["ScheduleGroups"]:
            found.append(self.read(f"/tags/{group['Arn']}"))
        for one in found[1]["Schedules"]:
            found.append(self.read(f"/schedules/{one['Name']}?groupName={one['GroupName']}"))
        return found

    def restore(self) -> None:
        """Put back what an example may have deleted, and remove what it has made."""
        names = [group["Name"] for group in self.read("/schedule-groups")["ScheduleGroups"]]
        for name in names:
            if name not in ("default", "g"):
                self.ask("DELETE", f"/schedule-groups/{name}")
        if "g" not in names:
            self.ask("POST", "/schedule-groups/g")
        names = [one["Name"] for one in self.read("/schedules?ScheduleGroup=default")["Schedules"]]
        for name in names:
            if name != "a":
                self.ask("DELETE", f"/schedules/{name}")
        if "a" not in names:
            members = self.scheduler.members("a")
            self.ask("POST", "/schedules/a", json.dumps(members).encode())

    def assert_sound(self, method: str, path: str, body: bytes) -> None:
        """No answer of 500 and above, and a refusal changes nothing."""
        before = self.state()
        answer = self.ask(method, path, body)
        asked = (method, path, body[:1000], answer)
        assert answer.status == 200 or 400 <= answer.status < 500, asked
        assert answer.headers["x-amzn-requestid"]
        if answer.status >= 400:
            assert answer.headers["x-amzn-errortype"], asked
            assert self.state() == before, asked

    def close(self) -> None:
        self.connection.close()
        self.scheduler.close()


@pytest.fixture
def target(server: Server) -> Iterator[Target]:
    target = Target(server)
    yield target
    target.close()


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(encoded(value))


def _quoted(value: Any) -> str:
    return quote(_text(value), safe="", errors="surrogatepass")


@FUZZ
@given(data=st.data())
def test_members_of_any_kind(target: Target, data: st.DataObject) -> None:
    target.restore()
    route = data.draw(st.sampled_from(ROUTES))
    shapes = SCHEDULER.actions[route.action].input.members
    arns = st.sampled_from([target.scheduler.group_arn("g"), target.scheduler.group_arn("none")])
    likely = {
        name: arns if name == "ResourceArn" else _values(name, shape)
        for name, shape in shapes.items()
    }
    required = RULES.get(SCHEDULER.actions[route.action].input)
    needed = {name: likely.pop(name) for name in (required.required if required else ())}
    all_likely = st.fixed_dictionaries(needed, optional=likely)
    members = data.draw(with_one_odd(all_likely, dict.fromkeys(shapes, VALUES)))
    path = route.path + ("" if route.label is None else _quoted(members.pop(route.label, "")))
    parameters = []
    for parameter, name in route.query.items():
        if name in members:
            value = members.pop(name)
            values = value if isinstance(value, list) else [value]
            parameters += [(parameter, _text(one)) for one in values]
    if parameters:
        path += "?" + urlencode(parameters, errors="surrogatepass")
    target.assert_sound(route.method, path, json.dumps(encoded(members)).encode())


@FUZZ
@given(
    method=st.sampled_from(["GET", "POST", "PUT", "DELETE", "PATCH"]),
    head=st.sampled_from(["/schedules", "/schedule-groups", "/tags", "/schedules/", "/tags/"]),
    rest=st.text(alphabet="az.%2FfE/?&=+#:-_~", max_size=20),
    body=st.binary(max_size=20) | st.just(b"{}"),
)
def test_paths_of_any_kind(target: Target, method: str, head: str, rest: str, body: bytes) -> None:
    target.restore()
    target.assert_sound(method, head + rest, body)
