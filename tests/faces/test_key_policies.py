"""Actions that the policy of a key allows on each wire, and changes of the policy."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.faces.connections import Answer
from tests.faces.signing import JSON, Signer, Verifying
from tests.waiting import until

ACCOUNT = "111122223333"
TEXT = {"Content-Type": "text/plain"}
STATEMENTS = [
    {
        "Effect": "Allow",
        "Action": ["sqs:CreateQueue", "sqs:SendMessage", "sqs:GetQueueAttributes"],
        "Resource": f"arn:aws:sqs:*:{ACCOUNT}:team-*",
    },
    {"Effect": "Allow", "Action": "scheduler:*", "Resource": "arn:aws:scheduler:*:*:schedule/a/*"},
    {"Effect": "Deny", "Action": "sqs:*", "Resource": "arn:aws:sqs:*:*:team-secret"},
]


def document(*statements: Any) -> str:
    return json.dumps({"Version": "2012-10-17", "Statement": statements})


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Verifying]:
    with Verifying(tmp_path_factory.mktemp("verifying")) as running:
        yield running


@pytest.fixture(scope="module")
def owner(gateway: Verifying) -> Signer:
    """A key without a policy, whose account has queues."""
    signer = gateway.signer(ACCOUNT)
    for name in ("team-a", "team-secret", "other"):
        until(lambda: signer.sqs("CreateQueue", QueueName=name).status, lambda found: found == 200)  # noqa: B023
    return signer


@pytest.fixture(scope="module")
def team(gateway: Verifying, owner: Signer, tmp_path_factory: pytest.TempPathFactory) -> Signer:
    """A key that may do something with some of them."""
    path = tmp_path_factory.mktemp("policies") / "team.json"
    path.write_text(document(*STATEMENTS))
    made = json.loads(
        gateway.keys(
            "create", "team", "--access", "--account", ACCOUNT, "--policy", str(path), "--json"
        )
    )
    assert made["policy"] == json.loads(path.read_text())
    signer = Signer(gateway.url, made["access_key_id"], made["secret_access_key"], ACCOUNT)
    signer.key_id = made["id"]
    until(lambda: signer.form("sts", Action="GetCallerIdentity").status, lambda found: found == 200)
    return signer


def send(signer: Signer, name: str) -> Answer:
    url = f"http://localhost/{ACCOUNT}/{name}"
    return signer.sqs("SendMessage", QueueUrl=url, MessageBody="x")


def schedule(signer: Signer, group: str) -> Answer:
    target = f"/schedules/one?groupName={group}"
    return signer.other(service="scheduler").ask("GET", target, JSON)


def test_a_run_by_hand_takes_the_right_to_the_schedule_of_its_group(team: Signer) -> None:
    """The key has the right to group `a`, in which there is no such schedule."""

    def run(query: str) -> int:
        return team.ask("POST", f"/v1/schedules/one/runs{query}", JSON).status

    assert [run(query) for query in ("?group=a", "?group=b", "")] == [404, 403, 403]


def test_a_list_of_queues_has_metrics_of_those_that_it_may_read(
    gateway: Verifying, owner: Signer, tmp_path: Path
) -> None:
    lists = {"Effect": "Allow", "Action": "sqs:ListQueues", "Resource": "*"}
    path = tmp_path / "lists.json"
    path.write_text(document(lists, *STATEMENTS))
    arguments = ("--access", "--account", ACCOUNT, "--policy", str(path), "--json")
    made = json.loads(gateway.keys("create", "lister", *arguments))
    signer = Signer(gateway.url, made["access_key_id"], made["secret_access_key"], ACCOUNT)
    answer = until(
        lambda: signer.ask("GET", "/v1/queues?metrics=true", JSON, b""),
        lambda found: found.status == 200,
    )
    found = {one["name"]: "metrics" in one for one in json.loads(answer.body)}
    wanted = {"other": False, "team-a": True, "team-secret": False}
    assert {name: found[name] for name in wanted} == wanted


def test_what_it_allows_on_each_wire(team: Signer) -> None:
    for _ in range(2):
        assert send(team, "team-a").status == 200
        for name in ("team-secret", "other"):
            refused = send(team, name)
            assert (refused.status, "not authorized to perform" in refused.text) == (403, True)
    assert "with an explicit deny in an identity-based policy" in send(team, "team-secret").text
    for name, status in (("team-b", 200), ("mine", 403)):
        assert team.sqs("CreateQueue", QueueName=name).status == status
    assert team.sqs("ListQueues").status == 403
    assert team.form("sns", Action="ListTopics").status == 403
    assert team.form("sts", Action="GetCallerIdentity").status == 200
    # Absent is what it may see, and forbidden what it may not.
    assert [schedule(team, group).status for group in ("a", "b")] == [404, 403]


def test_what_it_allows_on_faces_of_ours(team: Signer, owner: Signer) -> None:
    body = json.dumps({"message": 1}).encode()
    for name, status in (("team-a", 201), ("other", 403), ("team-secret", 403)):
        sent = team.ask("POST", f"/v1/queues/{name}/messages", JSON, body)
        assert sent.status == status
    for name, status in (("team-c", 201), ("mine", 403)):
        made = team.ask("POST", "/v1/queues", JSON, json.dumps({"name": name}).encode())
        assert made.status == status
    assert team.ask("POST", "/queue", TEXT, b"x").status == 403
    assert team.ask("GET", "/v1/keys").status == 403
    for target in ("/v1/queues", "/v1/logs", "/v1/channels", "/api/queues", "/v1/schedules"):
        assert [owner.ask("GET", target).status, team.ask("GET", target).status] == [200, 403]


def test_it_is_changed_by_administrators_and_known_at_once(
    gateway: Verifying, owner: Signer
) -> None:
    administrator = gateway.first

    def change(signer: Signer, target: str, method: str, **members: Any) -> Answer:
        return signer.ask(method, target, JSON, json.dumps(members).encode())

    policy = json.loads(document({"Effect": "Allow", "Action": "sqs:*", "Resource": "*"}))
    new = {"name": "till", "kind": "access", "account_id": ACCOUNT, "policy": policy}
    made = change(administrator, "/v1/keys", "POST", **new)
    assert made.status == 201
    key = json.loads(made.body)
    assert key["policy"] == policy
    till = Signer(gateway.url, key["access_key_id"], key["secret_access_key"], ACCOUNT)
    path = f"/v1/keys/{key['id']}"
    assert send(till, "other").status == 200
    nothing = json.loads(document({"Effect": "Deny", "Action": "sqs:*", "Resource": "*"}))
    assert change(owner, path, "PATCH", policy=None).status == 403
    assert (
        json.loads(change(administrator, path, "PATCH", policy=nothing).body)["policy"] == nothing
    )
    assert send(till, "other").status == 403
    malformed = change(administrator, path, "PATCH", policy={"Statement": []}, disabled="x")
    assert malformed.status == 400
    statements: list[object] = [[{}], -(2**100)]
    for unfit in statements:
        refused = change(administrator, path, "PATCH", policy={"Statement": unfit}, disabled=True)
        assert (refused.status, "MalformedPolicyDocument" in refused.text) == (400, True)
    shown = json.loads(administrator.ask("GET", path).body)
    assert (shown["policy"], shown["disabled_at"]) == (nothing, None)
    assert json.loads(change(administrator, path, "PATCH", policy=None).body)["policy"] is None
    assert send(till, "other").status == 200


def test_a_schedule_takes_the_rights_to_its_target_and_its_role(
    gateway: Verifying, owner: Signer
) -> None:
    role = f"arn:aws:iam::{ACCOUNT}:role/scheduler"
    elsewhere = "arn:aws:sqs:us-east-1:444455556666:theirs"

    def create(signer: Signer, name: str, arn: str) -> int:
        body = {
            "ScheduleExpression": "rate(1 day)",
            "FlexibleTimeWindow": {"Mode": "OFF"},
            "Target": {"Arn": arn, "RoleArn": role},
        }
        scheduler = signer.other(service="scheduler")
        return scheduler.ask("POST", f"/schedules/{name}", JSON, json.dumps(body).encode()).status

    statements = [{"Effect": "Allow", "Action": "scheduler:*", "Resource": "*"}]
    made = json.loads(gateway.keys("create", "timer", "--access", "--account", ACCOUNT, "--json"))
    timer = Signer(gateway.url, made["access_key_id"], made["secret_access_key"], ACCOUNT)
    path = f"/v1/keys/{made['id']}"
    own = f"arn:aws:sqs:us-east-1:{ACCOUNT}:other"
    for statement in (
        {"Effect": "Allow", "Action": "sqs:SendMessage", "Resource": own},
        {"Effect": "Allow", "Action": "iam:PassRole", "Resource": role},
    ):
        policy = {"policy": json.loads(document(*statements))}
        patched = gateway.first.ask("PATCH", path, JSON, json.dumps(policy).encode())
        assert patched.status == 200
        assert create(timer, "own", own) == 403
        statements.append(statement)
    policy = {"policy": json.loads(document(*statements))}
    assert gateway.first.ask("PATCH", path, JSON, json.dumps(policy).encode()).status == 200
    assert create(timer, "own", own) == 200
    assert create(timer, "theirs", elsewhere) == 403
    # Whether it may send there is asked when it fires.
    assert create(owner, "theirs", elsewhere) == 200


def test_the_command_shows_and_changes_it(
    gateway: Verifying, owner: Signer, tmp_path: Path
) -> None:
    made = json.loads(gateway.keys("create", "shop", "--access", "--account", ACCOUNT, "--json"))
    shop = Signer(gateway.url, made["access_key_id"], made["secret_access_key"], ACCOUNT)
    number = str(made["id"])
    until(lambda: send(shop, "other").status, lambda found: found == 200)
    assert "it may do all in its account" in gateway.keys("policy", number)
    file = tmp_path / "shop.json"
    file.write_text(document({"Effect": "Allow", "Action": "sns:*", "Resource": "*"}))
    assert "what its policy says" in gateway.keys("policy", number, "--set", str(file))
    until(lambda: send(shop, "other").status, lambda found: found == 403)
    assert json.loads(gateway.keys("policy", number)) == json.loads(file.read_text())
    [listed] = [line for line in gateway.keys("list").splitlines() if made["access_key_id"] in line]
    assert "what its policy says" in listed
    gateway.keys("policy", number, "--remove")
    until(lambda: send(shop, "other").status, lambda found: found == 200)
