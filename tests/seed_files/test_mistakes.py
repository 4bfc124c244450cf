"""Mistakes in seed files: all at once, each with its line, its field and what is allowed."""

from __future__ import annotations

from pathlib import Path

import pytest

from queuegate.gateway.command.gateway_client import ask
from queuegate.gateway.seeding.seed_files import SeedFile
from tests.cli.processes import Gateway
from tests.seed_files.applying import apply, seed_file


def mistakes_of(
    gateway: Gateway, folder: Path, text: str, name: str = "seed.toml", *arguments: str
) -> list[str]:
    """Return the mistakes as `line: text`."""
    file = seed_file(folder, text, name)
    lines = apply(gateway, file, *arguments, code=1).stderr.splitlines()
    return [line.partition(f"{file}:")[2] for line in lines if "warning: " not in line]


TOML = """\
account = "12"

[queues.orders]
visibility_timeout = 45000
delay_second = 3
dead_letter_queue = "dead.fifo"
policy = '''
[]'''
messages = [
  "ok",
  { body = "" },
  { body = "x", delay_seconds = 901 },
]

[queues."dead.fifo"]
messages = ["no group"]

[queues."bad name"]
tags = { "" = "x" }

[topics.events]
content_based_deduplication = true
[[topics.events.subscriptions]]
protocol = "htp"
[[topics.events.subscriptions]]
endpoint = "orders"
filter_policy = { kind = "order" }
raw_message_delivery = "perhaps"

[schedules.nightly]
schedule_expression = "rate(0 days)"
state = "ON"
target = { arn = "orders", role = "x" }

[channels.alerts]
size = 0
[logs.clicks]
parts = 3
[keys.shop]
kind = "admin"
"""
FOUND = [
    "1: account: '12' is not allowed: allowed are 12 digits",
    "4: queues.orders.visibility_timeout: Invalid value for the parameter VisibilityTimeout: "
    "allowed are 0 to 43200",
    "5: queues.orders.delay_second: is unknown: did you mean delay_seconds? allowed are ",
    "6: queues.orders.dead_letter_queue: Value ",
    "7: queues.orders.policy: ",
    "11: queues.orders.messages.1: The request must contain the parameter MessageBody",
    "12: queues.orders.messages.2: Value 901 for parameter DelaySeconds is invalid. Reason: ",
    "16: queues.dead.fifo.messages.0: The request must contain the parameter MessageGroupId",
    "18: queues.bad name: queue bad name: Can only include alphanumeric characters, hyphens, or ",
    "22: topics.events.content_based_deduplication: Invalid parameter: Attributes Reason: ",
    "24: topics.events.subscriptions.0.protocol: Invalid parameter: Amazon SNS does not support",
    "27: topics.events.subscriptions.1.filter_policy: Invalid parameter: Attributes Reason: "
    'FilterPolicy: "kind" must be an object or an array',
    "28: topics.events.subscriptions.1.raw_message_delivery: Invalid parameter: Attributes Reason",
    "31: schedules.nightly.schedule_expression: ",
    "32: schedules.nightly.state: 1 validation error detected: Value 'ON' at 'state' failed to "
    "satisfy constraint: Member must satisfy enum value set: [ENABLED, DISABLED]",
    "33: schedules.nightly.target.role: is unknown: did you mean role_arn? allowed are arn, ",
    "36: channels.alerts.size: The field `size` is refused: allowed is 1 to ",
    "38: logs.clicks.parts: is unknown: did you mean partitions? allowed are max_age, max_bytes",
    "40: keys.shop.kind: The field `kind` is refused: allowed is access or api",
]


def test_all_mistakes_are_found_with_their_lines(gateway: Gateway, tmp_path: Path) -> None:
    found = mistakes_of(gateway, tmp_path, TOML)
    assert [one[: len(start)] for one, start in zip(found, FOUND, strict=False)] == FOUND
    assert len(found) == len(FOUND)


@pytest.mark.parametrize(
    ("name", "text", "mistakes"),
    [
        ("seed.toml", "[queues.a]\n\nx = \n", ["3: is not TOML: "]),
        ("seed.toml", '\n[queues."a\\u0000b"]', ["2: queues.a?b: queue a?b: Can only"]),
        (
            "seed.yaml",
            'queues:\n  "a\\ud800": {}',
            ["2: queues.a?: queue a?: Can only include alphanum"],
        ),
        (
            "seed.toml",
            "[topics.t]\n"
            + "[[topics.t.subscriptions]]\nprotocol = 'http'\nendpoint = 'http://u:p@h/'\n" * 2,
            ["5: topics.t.subscriptions.1: the subscription http://u:****@h/ is in the file twice"],
        ),
        ("seed.toml", "queues = 3\n", ["1: queues: has to be a table of names"]),
        ("seed.toml", "\naccounts = 3\n", ["2: accounts: has to be a table of names"]),
        ("seed.toml", "\n[queue.a]\n", ["2: queue: is unknown: did you mean queues? allowed are"]),
        ("seed.toml", "[queues]\na = 3\n", ["2: queues.a: has to be a table"]),
        (
            "seed.toml",
            "[queues.a]\nmax_receive_count = 3\n",
            ["2: queues.a.max_receive_count: needs dead_letter_queue beside it"],
        ),
        ("seed.yaml", "queues:\n  a:\n   b: [\n", ["4: is not YAML: "]),
        ("seed.yaml", "queues: &a\n  b: *a\n", ["2: is not YAML: an alias (*name) is not supp"]),
        (
            "seed.yml",
            "queues:\n  a:\n    delay_seconds: 901\n",
            ["3: queues.a.delay_seconds: Invalid value for the parameter DelaySeconds: allowed"],
        ),
        (
            "seed.toml",
            "[keys.a]\nkind = 'access'\n",
            ["2: keys.a.kind: This takes the key of an administrator: "],
        ),
        ("seed.yaml", "\0", ["1: is not YAML: "]),
        ("seed.yaml", "[" * 3_000, ["1: is nested too deeply"]),
        ("seed.toml", "a = " + "[" * 70 + "]" * 70, ["1: is nested too deeply"]),
        ("a.conf", "{" * 3_000, ["1: is not HOCON: expected a key"]),
        ("seed.ini", "", ["1: the ending of the file is unknown: allowed are .toml, .yaml"]),
        ("a.conf", "queues {\n  a { delay = soon }\n}", ["2: queues.a.delay: 'soon' is not a dur"]),
        (
            "a.conf",
            "queues {\n  a {\n delay 3\n}\n",
            ["3: is not HOCON: expected =, : or { behind"],
        ),
        ("a.conf", "queues {\n  a { delay = 3 s", ["2: is not HOCON: expected a key, not the end"]),
        ("a.conf", "a = ${B_IS_NOT_SET}", ["1: is not HOCON: ${B_IS_NOT_SET} is neither set abo"]),
        (
            "t.json",
            '{"Resources": {\n\t"Q": {"Type": "AWS::SQS::Queue",\n\t"Properties": {"DelaySeconds": '
            '{"Ref": "P"}}}}}',
            ["3: Resources.Q.Properties.DelaySeconds: 'P' is neither a resource nor a parameter"],
        ),
        (
            "t.yaml",
            "Parameters:\n  P: {Type: String}\nResources:\n  Q:\n    Type: AWS::SQS::Queue\n"
            "    Properties:\n      QueueName: !Ref P\n      VisibilityTimeout: !If [a, b, c]\n",
            [
                "2: Parameters.P: has to have a Default: nobody is asked for it",
                "8: Resources.Q.Properties.VisibilityTimeout: Fn::If is not supported: allowed",
            ],
        ),
        (
            "seed.toml",
            "[keys.a]\npolicy.Statement = [3]\nsecret_file = 'absent/key'\n[schedules.s]\n"
            "schedule_expression = 'rate(1 days)'\ntarget.arn = 'q'\n"
            "start_date = 2031-01-01T00:00:00Z\nend_date = 2030-01-01T00:00:00Z\n"
            "[schedules.t]\nschedule_expression = 'rate(1 days)'\ntarget.arn = 'q'\n"
            "flexible_time_window.mode = 'x'\nend_date = 2030-01-01T00:00:00Z\n",
            [
                "2: keys.a.policy: ",
                "3: keys.a.secret_file: has to be the name of a file in a directory that exists",
                "7: schedules.s.start_date: The StartDate you specify must be earlier than the End",
                "12: schedules.t.flexible_time_window: 1 validation error detected: Value 'x' ",
            ],
        ),
        (
            "seed.yaml",
            "queues:\n  a:\n  b:\n  a:\n",
            ["4: is not YAML: a is in the table twice"],
        ),
        (
            "seed.toml",
            f"[keys.a]\nsecret_file = '{'9' * 500}'\n",
            ["2: keys.a.secret_file: has to be the name of a file"],
        ),
        (
            "seed.yaml",
            "logs:\n  a:\n    partitions: .inf",
            ["3: logs.a.partitions: The field `part"],
        ),
        (
            "t.json",
            '{"Parameters": 3, "Resources": {\n"Q": {"Type": "AWS::SQS::Queue",\n"Properties": '
            '{"QueueName": {"Ref": []}}},\n"T": {"Type": "AWS::SNS::Topic",\n'
            '"Properties": {"TopicName": "",\n"Subscription": 3}}}}',
            [
                "1: Parameters: has to be an object of parameters",
                "3: Resources.Q.Properties.QueueName: '[]' is neither a resource nor a parameter",
                "4: Resources.T: topic : Invalid parameter: Topic Name",
                "6: Resources.T.Properties.Subscription: has to be a list of tables",
            ],
        ),
        ("a.conf", f"queues.a.delay = {'9' * 500}", ["1: queues.a.delay: '9999"]),
        (
            "t.yaml",
            "Resources:\n  Q:\n    Type: AWS::SQS::Queue\n    Properties:\n      QueueName: q\n"
            "      FifoQueue: true\n      Colour: red\n",
            [
                "6: Resources.Q.Properties.FifoQueue: q has to end in .fifo, as FIFO does",
                "7: Resources.Q.Properties.Colour: is unknown: allowed are ",
            ],
        ),
    ],
)
def test_mistakes_of_each_form(
    gateway: Gateway, name: str, text: str, mistakes: list[str], tmp_path: Path
) -> None:
    found = mistakes_of(gateway, tmp_path, text, name)
    assert [one[: len(start)] for one, start in zip(found, mistakes, strict=False)] == mistakes
    assert len(found) == len(mistakes)


def test_an_absent_file_is_a_mistake(gateway: Gateway, tmp_path: Path) -> None:
    absent = str(tmp_path / "seed.toml")
    assert "seed.toml:1: cannot be read: No such file" in apply(gateway, absent, code=1).stderr


def test_a_long_list_has_the_line_of_each_entry(tmp_path: Path) -> None:
    """Time grows with the length: a list of this length took a minute and a half once."""
    texts = [f'  "message {n} # ] \\" ",' for n in range(10_000)]
    text = "\n".join(["[queues.a]", "messages = [", *texts, "3,", "]"])
    read = SeedFile(Path(seed_file(tmp_path, text)), ("000000000000", "us-east-1"), {})
    assert [one[-60:] for one in read.file.mistakes] == [
        "10003: queues.a.messages.10000: has to be a text or a table with body"[-60:]
    ]


QUEUE = (
    '{"resources": [{"kind": "queue", "account_id": "000000000000", "region": "%s", "name": "%s"'
)
BODIES = {
    QUEUE % ("us-east-1", "\xff"): "can't decode byte 0xff",
    QUEUE % ("us-east-1\\n", "q"): "Expected `str` matching regex",
    QUEUE % ("us-east-1", "q") + ', "values": {"a":' + "[" * 5000: "recursion",
    "[]": "Expected `object`, got `array`",
    '{"resources": [{"kind": "x"}]}': "Invalid enum value 'x'",
    '{"places": [["1", "us-east-1"]]}': "Expected `str` matching regex",
    '{"resources": [{"kind": "topic", "account_id": "000000000000", "region": "a", "name": "t", '
    '"values": {"tags": 3}}]}': "tags have to be an object of texts",
}


@pytest.mark.parametrize(("body", "text"), BODIES.items())
def test_the_page_refuses_bodies_that_are_no_seed(gateway: Gateway, body: str, text: str) -> None:
    answer = ask(
        "POST", f"{gateway.url}/_admin/seed", body.encode("latin-1"), {"authorization": "any"}
    )
    assert answer.status == 400
    assert text in answer.body.decode()
