"""The audit: who changed what, and who was refused what for which reason; never a secret."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.cli.calling import call
from tests.faces.audited import AuditFile
from tests.faces.signing import FORM, JSON, MASTER_KEY, Signer, Verifying, send
from tests.waiting import until

OWNER = "111122223333"
STRANGER = "444455556666"
BODY = "the-body-of-a-message"
DENYING = {
    "Statement": [
        {
            "Sid": "NobodySends",
            "Effect": "Deny",
            "Principal": "*",
            "Action": "sqs:SendMessage",
            "Resource": "*",
        }
    ]
}


class World(NamedTuple):
    gateway: Verifying
    audit: AuditFile
    owner: Signer
    stranger: Signer


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("audited")
    audit = AuditFile(folder)
    with Verifying(folder, QUEUEGATE_AUDIT=str(audit.path)) as gateway:
        owner, stranger = gateway.signer(OWNER), gateway.signer(STRANGER)
        for signer in (owner, stranger):
            until_known(signer)
        yield World(gateway, audit, owner, stranger)


def until_known(signer: Signer) -> None:
    until(lambda: signer.sqs("ListQueues").status, lambda status: status == 200)


def line_of(world: World, message: str, operation: str, **wanted: Any) -> dict[str, Any]:
    """The line of it, when it is there."""
    wanted |= {"message": message, "operation": operation}
    return world.audit.until(lambda line: wanted.items() <= line.items())


def ask(signer: Signer, method: str, target: str, body: object = None) -> int:
    content = b"" if body is None else json.dumps(body).encode()
    return signer.ask(method, target, {"Content-Type": "application/json"}, content).status


def test_a_change_says_who_what_and_from_where(world: World) -> None:
    answer = world.owner.sqs("CreateQueue", QueueName="made")
    line = line_of(world, "changed", "sqs:CreateQueue", resource="made")
    assert line["account"] == OWNER
    assert line["access_key"] == world.owner.access_key
    assert line["key"] == str(world.owner.key_id)
    assert line["address"] in ("127.0.0.1", "::1")
    assert line["request_id"] == answer.headers["x-amzn-requestid"]
    assert (line["logger"], line["status"]) == ("queuegate.audit", 200)


def test_changes_of_all_faces(world: World) -> None:
    owner, first = world.owner, world.gateway.first
    owner.form("sns", Action="CreateTopic", Version="2010-03-31", Name="audited")
    assert ask(owner, "POST", "/v1/queues", {"name": "native"}) == 201
    assert ask(owner, "POST", "/v1/queues/native/purge") == 200
    assert ask(owner, "PUT", "/v1/channels/alerts", {}) < 300
    assert ask(owner, "POST", "/v1/logs", {"log": "events"}) == 201
    assert ask(owner, "PUT", "/v1/logs/events/groups/readers", {}) < 300
    assert ask(owner, "POST", "/api/queues", {"queue_name": "simple"}) < 300
    assert ask(first, "POST", "/v1/keys", {"name": "till"}) == 201
    assert ask(first, "POST", "/_admin/clock", {"advance_seconds": 1}) == 200
    for operation, resource in (
        ("sns:CreateTopic", "audited"),
        ("rest:createQueue", "native"),
        ("rest:purgeQueue", "/v1/queues/native/purge"),
        ("channels:setUpChannel", "/v1/channels/alerts"),
        ("logs:createLog", "events"),
        ("logs:createGroup", "/v1/logs/events/groups/readers"),
        ("simple:createQueue", "simple"),
        ("rest:createKey", "till"),
        ("POST /_admin", "/_admin/clock"),
    ):
        assert line_of(world, "changed", operation)["resource"] == resource


def test_what_is_allowed_and_changes_nothing_is_not_in_it(world: World) -> None:
    url = json.loads(world.owner.sqs("CreateQueue", QueueName="quiet").body)["QueueUrl"]
    line_of(world, "changed", "sqs:CreateQueue", resource="quiet")
    world.audit.lines()
    for number in range(3):
        world.owner.sqs("SendMessage", QueueUrl=url, MessageBody=f"{BODY} {number}")
    [received] = json.loads(world.owner.sqs("ReceiveMessage", QueueUrl=url).body)["Messages"]
    handle = received["ReceiptHandle"]
    world.owner.sqs("DeleteMessage", QueueUrl=url, ReceiptHandle=handle)
    world.owner.sqs("GetQueueAttributes", QueueUrl=url, AttributeNames=["All"])
    assert ask(world.owner, "POST", "/v1/queues/quiet/messages", {"message": BODY}) == 201
    assert world.owner.sqs("CreateQueue", QueueName="not a name").status == 400
    world.owner.sqs("PurgeQueue", QueueUrl=url)
    line_of(world, "changed", "sqs:PurgeQueue")
    assert [line["operation"] for line in world.audit.lines()] == ["sqs:PurgeQueue"]


def test_who_is_refused_and_why(world: World) -> None:
    owner, stranger = world.owner, world.stranger
    url = json.loads(owner.sqs("CreateQueue", QueueName="own").body)["QueueUrl"]
    stranger.sqs("SendMessage", QueueUrl=url, MessageBody=BODY)
    line = line_of(world, "refused", "sqs:SendMessage", account=STRANGER)
    assert (line["reason"], line["resource"]) == ("policy", f"arn:aws:sqs:us-east-1:{OWNER}:own")
    assert "statement" not in line

    owner.sqs("SetQueueAttributes", QueueUrl=url, Attributes={"Policy": json.dumps(DENYING)})
    owner.sqs("SendMessage", QueueUrl=url, MessageBody=BODY)
    line = line_of(world, "refused", "sqs:SendMessage", account=OWNER)
    assert (line["reason"], line["statement"]) == ("policy", "NobodySends")

    assert ask(owner, "POST", "/v1/keys", {"name": "mine"}) == 403
    line = line_of(world, "refused", "rest:createKey")
    assert (line["reason"], line["account"]) == ("right", OWNER)

    owner.other(secret="wrong").sqs("ListQueues")
    line = line_of(world, "refused", "sqs:ListQueues")
    assert (line["reason"], line["claimed_access_key"]) == ("authentication", owner.access_key)
    assert "account" not in line


def test_keys_that_are_shown(world: World) -> None:
    key = world.gateway.keys("create", "shown", "--rate", "1/h").strip()
    number = key.split("_")[1]

    def sends() -> int:
        headers = {"X-Api-Key": key, "Content-Type": "application/json"}
        body = json.dumps({"channel": "c", "payload": BODY}).encode()
        return send(world.gateway.url, "POST", "/v1/messages", headers, body).status

    until(sends, lambda status: status == 201)
    assert sends() == 429
    line = line_of(world, "refused", "channels:publishMessage", reason="quota")
    assert (line["key"], line["account"]) == (number, "000000000000")

    wrong = f"qg_{number}_" + "w" * 43
    send(world.gateway.url, "GET", "/v1/queues", {"X-Api-Key": wrong}, b"")
    line = line_of(world, "refused", "rest:listQueues", reason="authentication")
    assert line["claimed_key"] == number
    assert wrong not in world.audit.text()
    assert key not in world.audit.text()


def test_who_may_not_ask_from_there(world: World) -> None:
    headers = {"Origin": "https://evil.example", **JSON}
    assert send(world.gateway.url, "POST", "/", headers, b"{}").status == 403
    assert line_of(world, "refused", "POST /")["reason"] == "origin"


def test_pages_of_operators(world: World) -> None:
    assert ask(world.owner, "GET", "/_admin/outbox") == 403
    line = line_of(world, "refused", "GET /_admin", resource="/_admin/outbox")
    assert (line["reason"], line["account"]) == ("right", OWNER)


def test_names_cannot_forge_lines(world: World) -> None:
    name = 'x\n{"message": "changed"}\r\u2028\x1b[31m\x85'
    form = {"Action": "CreateTopic", "Version": "2010-03-31", "Name": name}
    world.owner.other(secret="wrong").form("sns", **form)
    world.owner.other(secret="wrong").form("sns", **form | {"Action": f"Act{name}" + "y" * 1000})
    world.owner.other(access_key="AKIA\x1b[2J", secret="wrong").form("sns", **form)
    line = world.audit.until(lambda line: line.get("operation", "").startswith("sns:Actx"))
    assert len(line["operation"]) < 400
    text = world.audit.text()
    assert all(one.isprintable() or one == "\n" for one in text)
    assert all(json.loads(one)["logger"] == "queuegate.audit" for one in text.splitlines())


def read(signer: Signer, query: str = "") -> dict[str, Any]:
    answer = signer.ask("GET", f"/_admin/audit{query}", {}, b"")
    assert answer.status == 200, answer.body
    found: dict[str, Any] = json.loads(answer.body)
    return found


def test_administrators_read_the_newest_lines(world: World) -> None:
    first = world.gateway.first
    world.owner.sqs("CreateQueue", QueueName="read")
    line = line_of(world, "changed", "sqs:CreateQueue", resource="read")
    found = read(first, "?limit=1")
    assert (found["destination"], found["processes"]) == (str(world.audit.path), 1)
    [newest] = found["lines"]
    assert (newest["event"], newest["at"][:19]) == ("changed", line["time"][:19])
    same = ("account", "access_key", "key", "operation", "resource", "address", "request_id")
    assert {name: newest[name] for name in same} == {name: line[name] for name in same}
    assert ask(world.stranger, "GET", "/_admin/audit") == 403
    refusal = read(first)["lines"][0]
    assert (refusal["event"], refusal["account"], refusal["reason"]) == (
        "refused",
        STRANGER,
        "right",
    )
    of_owner = read(first, f"?account={OWNER}&limit=1000")["lines"]
    assert {one["account"] for one in of_owner} == {OWNER}
    assert sorted(one["at"] for one in of_owner)[::-1] == [one["at"] for one in of_owner]
    for query in ("?limit=0", "?limit=1001", "?limit=x", "?account=me", "?unknown=1"):
        assert ask(first, "GET", f"/_admin/audit{query}") == 400, query


def test_the_newest_lines_are_those_of_all_processes(tmp_path: Path) -> None:
    with Verifying(tmp_path, "--workers", "2", QUEUEGATE_AUDIT="stderr") as gateway:
        for number in range(12):
            # Each has a connection of its own, which goes to any of the two.
            headers = {"X-Api-Key": f"qg_{number}_" + "w" * 43}
            assert send(gateway.url, "GET", f"/v1/queues/q{number}", headers, b"").status == 403
        found = read(gateway.first, "?limit=1000")
        assert found["processes"] == 2
        claimed = {one.get("claimed_key") for one in found["lines"]}
        assert claimed >= {str(number) for number in range(12)}


def test_a_flood_is_a_few_lines(world: World) -> None:
    wrong = world.owner.other(secret="wrong")
    world.audit.lines()
    for _ in range(50):
        wrong.sqs("ListDeadLetterSourceQueues", QueueUrl="same")
    for number in range(100):
        wrong.other(access_key=f"AKIA{number}").sqs("GetQueueUrl", QueueName="q")

    def counted() -> int:
        lines = [json.loads(line) for line in world.audit.text().splitlines()]
        flood = [one for one in lines if one.get("reason") == "authentication"]
        of_these = ("sqs:ListDeadLetterSourceQueues", "sqs:GetQueueUrl", None)
        return sum(one.get("count", 1) for one in flood if one.get("operation") in of_these)

    until(counted, lambda count: count >= 150)
    assert counted() == 150
    assert len(world.audit.lines()) < 100


def test_a_file_that_is_moved_away_is_made_again(world: World) -> None:
    world.audit.move_away()
    world.owner.sqs("CreateQueue", QueueName="after")
    assert line_of(world, "changed", "sqs:CreateQueue")["resource"] == "after"
    assert world.audit.path.stat().st_mode & 0o137 == 0


def test_commands_that_change_the_database(world: World, tmp_path: Path) -> None:
    audit = AuditFile(tmp_path)
    place = {"DATABASE_URL": world.gateway.dsn, "QUEUEGATE_AUDIT": str(audit.path)}
    place["QUEUEGATE_MASTER_KEY"] = MASTER_KEY
    made = json.loads(call("keys", "create", "cli", "--access", "--json", **place).stdout)
    assert call("keys", "policy", str(made["id"]), "--remove", **place).returncode == 0
    for action in ("rotate", "disable", "revoke"):
        assert call("keys", action, str(made["id"]), **place).returncode == 0
    assert call("keys", "policy", str(made["id"]), **place).returncode != 2
    assert call("keys", "list", **place).returncode == 0
    lines = audit.lines()
    assert [line["operation"].partition(" ")[2] for line in lines] == [
        "create",
        "policy",
        "rotate",
        "disable",
        "revoke",
    ]
    assert {(line["resource"], line["message"]) for line in lines} == {
        (f"key {made['id']} cli", "changed")
    }
    assert all(line["user"] for line in lines)
    assert made["secret_access_key"] not in audit.text()


def test_a_file_that_cannot_be_written_is_said_at_once(world: World, tmp_path: Path) -> None:
    place = {"DATABASE_URL": world.gateway.dsn, "QUEUEGATE_AUDIT": str(tmp_path / "no" / "file")}
    done = call("keys", "revoke", "1", **place)
    assert (done.returncode, "QUEUEGATE_AUDIT=" in done.stderr) == (1, True)


def test_nothing_of_it_is_a_secret(world: World) -> None:
    text = "".join(one.read_text() for one in world.audit.path.parent.glob("audit*"))
    assert BODY not in text
    for signer in (world.owner, world.stranger, world.gateway.first):
        assert signer.secret not in text
    assert "Signature" not in text
    assert FORM["Content-Type"] not in text
