"""Queues over the wire: creating, listing, attributes, tags, permissions, purging, deleting."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.faces.clients import Sqs
from tests.faces.servers import Server

ALWAYS = {
    "ApproximateNumberOfMessages": "0",
    "ApproximateNumberOfMessagesDelayed": "0",
    "ApproximateNumberOfMessagesNotVisible": "0",
    "DelaySeconds": "0",
    "MaximumMessageSize": "1048576",
    "MessageRetentionPeriod": "345600",
    "ReceiveMessageWaitTimeSeconds": "0",
    "SqsManagedSseEnabled": "true",
    "VisibilityTimeout": "30",
}
FIFO = {
    "FifoQueue": "true",
    "ContentBasedDeduplication": "false",
    "DeduplicationScope": "queue",
    "FifoThroughputLimit": "perQueue",
}
STAMPS = {"CreatedTimestamp", "LastModifiedTimestamp"}


@pytest.mark.parametrize("kind", ["standard", "fifo"])
def test_all_attributes_of_a_new_queue(sqs: Sqs, kind: str) -> None:
    url = sqs.create("q.fifo", FifoQueue="true") if kind == "fifo" else sqs.create("q")
    found = sqs.attributes(url)
    name = "q.fifo" if kind == "fifo" else "q"
    expected = ALWAYS | {"QueueArn": f"arn:aws:sqs:us-east-1:{sqs.account}:{name}"}
    if kind == "fifo":
        expected |= FIFO
    assert {k: v for k, v in found.items() if k not in STAMPS} == expected
    assert all(found[stamp].isdigit() and len(found[stamp]) == 10 for stamp in STAMPS)
    assert sqs.call("GetQueueAttributes", QueueUrl=url) == {}


DEAD = "arn:aws:sqs:us-east-1:A:dead"
POLICY = (
    '{"Version":"2012-10-17","Statement":'
    '[{"Effect":"Allow","Principal":"*","Action":"SQS:SendMessage"}]}'
)
# Name, value, and the value that reads back; A is the account.
ROUND_TRIPS = [
    ("VisibilityTimeout", "0", "0"),
    ("VisibilityTimeout", "43200", "43200"),
    ("VisibilityTimeout", "0045", "45"),
    ("MaximumMessageSize", "1024", "1024"),
    ("MaximumMessageSize", "1048576", "1048576"),
    ("MaximumMessageSize", "262144", "262144"),
    ("MessageRetentionPeriod", "60", "60"),
    ("MessageRetentionPeriod", "1209600", "1209600"),
    ("DelaySeconds", "900", "900"),
    ("ReceiveMessageWaitTimeSeconds", "20", "20"),
    ("SqsManagedSseEnabled", "False", "false"),
    ("SqsManagedSseEnabled", "TRUE", "true"),
    ("KmsMasterKeyId", "alias/aws/sqs", "alias/aws/sqs"),
    ("KmsDataKeyReusePeriodSeconds", "60", "60"),
    ("KmsDataKeyReusePeriodSeconds", "86400", "86400"),
    ("Policy", POLICY.replace(",", " , "), POLICY),
    ("RedriveAllowPolicy", '{"redrivePermission": "allowAll"}', '{"redrivePermission":"allowAll"}'),
    ("RedriveAllowPolicy", '{"redrivePermission": "denyAll"}', '{"redrivePermission":"denyAll"}'),
    (
        "RedriveAllowPolicy",
        f'{{"sourceQueueArns": ["{DEAD}"], "redrivePermission": "byQueue"}}',
        f'{{"redrivePermission":"byQueue","sourceQueueArns":["{DEAD}"]}}',
    ),
    (
        "RedrivePolicy",
        f'{{"maxReceiveCount": "5", "deadLetterTargetArn": "{DEAD}"}}',
        f'{{"deadLetterTargetArn":"{DEAD}","maxReceiveCount":5}}',
    ),
    (
        "RedrivePolicy",
        f'{{"deadLetterTargetArn": "{DEAD}", "maxReceiveCount": 1000}}',
        f'{{"deadLetterTargetArn":"{DEAD}","maxReceiveCount":1000}}',
    ),
]


def change(sqs: Sqs, url: str, **attributes: str) -> None:
    sqs.call("SetQueueAttributes", QueueUrl=url, Attributes=attributes)


@pytest.mark.parametrize(("name", "value", "reads_back"), ROUND_TRIPS)
def test_attributes_read_back(sqs: Sqs, name: str, value: str, reads_back: str) -> None:
    value, reads_back = (text.replace(":A:", f":{sqs.account}:") for text in (value, reads_back))
    sqs.create("dead")
    created, changed = sqs.create("created", **{name: value}), sqs.create("changed")
    change(sqs, changed, **{name: value})
    for url in (created, changed):
        assert sqs.attributes(url, name) == {name: reads_back}
        change(sqs, url, **{name: reads_back})
        assert sqs.attributes(url)[name] == reads_back
    assert sqs.create("created", **{name: reads_back}) == created


@pytest.mark.parametrize(
    ("name", "value", "reads_back"),
    [
        ("ContentBasedDeduplication", "True", "true"),
        ("DeduplicationScope", "messageGroup", "messageGroup"),
        ("DeduplicationScope", "queue", "queue"),
        ("FifoThroughputLimit", "perQueue", "perQueue"),
        ("FifoQueue", "TRUE", "true"),
    ],
)
def test_fifo_attributes_read_back(sqs: Sqs, name: str, value: str, reads_back: str) -> None:
    created = sqs.create("created.fifo", **({"FifoQueue": "True"} | {name: value}))
    changed = sqs.create("changed.fifo", FifoQueue="true")
    change(sqs, changed, **{name: value})
    for url in (created, changed):
        assert sqs.attributes(url, name) == {name: reads_back}
    assert sqs.create("created.fifo", **({"FifoQueue": "true"} | {name: reads_back})) == created


def test_attributes_are_in_one_order(sqs: Sqs) -> None:
    url = sqs.create()
    some = sqs.attributes(url, "VisibilityTimeout", "QueueArn", "Policy", "FifoQueue")
    assert list(some) == ["QueueArn", "VisibilityTimeout"]
    assert list(sqs.attributes(url, "DelaySeconds", "All")) == list(sqs.attributes(url))


def test_attributes_that_read_back_can_be_created_again(sqs: Sqs) -> None:
    policy = f'{{"deadLetterTargetArn":"{sqs.arn(sqs.create("dead"))}","maxReceiveCount":5}}'
    url = sqs.create(RedrivePolicy=policy, Policy=POLICY, KmsMasterKeyId="key")
    computed = ("Approximate", "Created", "LastModified", "QueueArn")
    found = sqs.attributes(url).items()
    settable = {name: value for name, value in found if not name.startswith(computed)}
    assert sqs.create(**settable) == url


def test_high_throughput_fifo(sqs: Sqs) -> None:
    high = {"DeduplicationScope": "messageGroup", "FifoThroughputLimit": "perMessageGroupId"}
    low = {"DeduplicationScope": "queue", "FifoThroughputLimit": "perQueue"}
    url = sqs.create("q.fifo", FifoQueue="true", **high)
    assert sqs.attributes(url, *high) == high
    half = {"DeduplicationScope": "queue"}
    refused = sqs.refusal("SetQueueAttributes", QueueUrl=url, Attributes=half)
    assert refused.code == "InvalidAttributeValue"
    change(sqs, url, **low)
    assert sqs.attributes(url, *low) == low


def test_a_key_switches_managed_encryption_off_for_good(sqs: Sqs) -> None:
    url = sqs.create()
    names = ("KmsMasterKeyId", "SqsManagedSseEnabled")
    change(sqs, url, KmsMasterKeyId="k")
    both = {"KmsMasterKeyId": "k", "SqsManagedSseEnabled": "false"}
    assert sqs.attributes(url, *names) == both
    managed = {"SqsManagedSseEnabled": "true"}
    refused = sqs.refusal("SetQueueAttributes", QueueUrl=url, Attributes=managed)
    assert refused.code == "InvalidAttributeName"
    change(sqs, url, KmsMasterKeyId="")
    assert sqs.attributes(url, *names) == {"SqsManagedSseEnabled": "false"}
    change(sqs, url, **managed)
    assert sqs.attributes(url, *names) == managed
    change(sqs, url, KmsMasterKeyId="k", SqsManagedSseEnabled="false")
    change(sqs, url, KmsMasterKeyId="", **managed)
    assert sqs.attributes(url, *names) == managed


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("Policy", POLICY),
        ("RedriveAllowPolicy", '{"redrivePermission":"denyAll"}'),
        ("RedrivePolicy", f'{{"deadLetterTargetArn":"{DEAD}","maxReceiveCount":5}}'),
        ("KmsMasterKeyId", "k"),
    ],
)
def test_empty_unsets(sqs: Sqs, name: str, value: str) -> None:
    sqs.create("dead")
    url = sqs.create(**{name: value.replace(":A:", f":{sqs.account}:")})
    assert name in sqs.attributes(url)
    for _ in range(2):
        change(sqs, url, **{name: ""})
        assert name not in sqs.attributes(url)
    assert name not in sqs.attributes(sqs.create("unset", **{name: ""}))


def test_the_default_reuse_period_is_not_shown(sqs: Sqs) -> None:
    url = sqs.create(KmsDataKeyReusePeriodSeconds="60")
    change(sqs, url, KmsDataKeyReusePeriodSeconds="300")
    assert "KmsDataKeyReusePeriodSeconds" not in sqs.attributes(url)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("VisibilityTimeout", "-1"),
        ("VisibilityTimeout", "43201"),
        ("VisibilityTimeout", ""),
        ("VisibilityTimeout", "1.5"),
        ("VisibilityTimeout", "1_0"),
        ("VisibilityTimeout", "٣"),
        ("VisibilityTimeout", "9" * 5000),
        ("MaximumMessageSize", "1023"),
        ("MaximumMessageSize", "1048577"),
        ("MessageRetentionPeriod", "59"),
        ("MessageRetentionPeriod", "1209601"),
        ("DelaySeconds", "901"),
        ("DelaySeconds", "x"),
        ("ReceiveMessageWaitTimeSeconds", "21"),
        ("SqsManagedSseEnabled", "yes"),
        ("KmsDataKeyReusePeriodSeconds", "59"),
        ("KmsDataKeyReusePeriodSeconds", "86401"),
        ("KmsMasterKeyId", "a\x00"),
        ("Policy", "no json"),
        ("Policy", "{}"),
        ("Policy", POLICY.replace("Allow", "allow")),
        ("Policy", POLICY.replace('"Principal"', '"Principals"')),
        ("Policy", "[]"),
        ("Policy", '{"a":"\\ud800"}'),
        ("Policy", '{"a":' * 900 + "1" + "}" * 900),
        ("Policy", '{"a":' * 36_000),  # As deep as a body of 256 KiB can be.
        ("ContentBasedDeduplication", "maybe"),
        ("DeduplicationScope", "group"),
        ("FifoThroughputLimit", "perGroup"),
    ],
    ids=lambda value: value[:20],
)
def test_values_out_of_range(json_sqs: Sqs, name: str, value: str) -> None:
    url = json_sqs.create("q.fifo", FifoQueue="true")
    before = json_sqs.attributes(url)
    members = {"QueueUrl": url, "Attributes": {"DelaySeconds": "7", name: value}}
    refused = json_sqs.refusal("SetQueueAttributes", **members)
    assert (refused.status, refused.code) == (400, "InvalidAttributeValue")
    assert refused.text == f"Invalid value for the parameter {name}."
    assert json_sqs.attributes(url) == before
    attributes = {"FifoQueue": "true", name: value}
    refused = json_sqs.refusal("CreateQueue", QueueName="new.fifo", Attributes=attributes)
    assert refused.code == "InvalidAttributeValue"


@pytest.mark.parametrize(
    ("queue", "given", "code", "text"),
    [
        ("q", {"Foo": "1"}, "Name", "Unknown Attribute Foo."),
        ("q", {"QueueArn": "x"}, "Name", "Unknown Attribute QueueArn."),
        ("q", {"CreatedTimestamp": "1"}, "Name", "Unknown Attribute CreatedTimestamp."),
        ("q", {"All": "x"}, "Name", "Unknown Attribute All."),
        ("q", {"fifoqueue": "1"}, "Name", "Unknown Attribute fifoqueue."),
        ("q", {"FifoQueue": "true"}, "Name", "Unknown Attribute FifoQueue."),
        (
            "q",
            {"ContentBasedDeduplication": "true"},
            "Name",
            "Unknown Attribute ContentBasedDeduplication.",
        ),
        (
            "q",
            {"FifoThroughputLimit": "perQueue"},
            "Name",
            "You can specify the FifoThroughputLimit only when FifoQueue is set to true.",
        ),
        (
            "q.fifo",
            {"FifoThroughputLimit": "perMessageGroupId"},
            "Value",
            "Invalid value for the parameter FifoThroughputLimit. Reason: The perMessageGroupId "
            "value is allowed only when the value for DeduplicationScope is messageGroup.",
        ),
    ],
)
def test_attributes_that_cannot_be_set(
    json_sqs: Sqs, queue: str, given: dict[str, str], code: str, text: str
) -> None:
    url = json_sqs.create(queue, **({"FifoQueue": "true"} if queue == "q.fifo" else {}))
    refused = json_sqs.refusal("SetQueueAttributes", QueueUrl=url, Attributes=given)
    assert (refused.status, refused.code) == (400, f"InvalidAttribute{code}")
    assert refused.text == text


SAME_POLICY = json.dumps(dict(reversed(json.loads(POLICY).items())))


@pytest.mark.parametrize(
    ("first", "changes", "again", "differs"),
    [
        ({}, {}, {}, None),
        ({"DelaySeconds": "5"}, {}, {}, None),
        ({"DelaySeconds": "5"}, {}, {"DelaySeconds": "5"}, None),
        ({}, {}, {"DelaySeconds": "0", "VisibilityTimeout": "30"}, None),
        ({}, {}, {"SqsManagedSseEnabled": "True"}, None),
        ({}, {}, {"DelaySeconds": "1"}, "DelaySeconds"),
        ({"DelaySeconds": "5"}, {}, {"DelaySeconds": "0"}, "DelaySeconds"),
        ({}, {"DelaySeconds": "7"}, {"DelaySeconds": "7"}, None),
        ({"DelaySeconds": "5"}, {"DelaySeconds": "7"}, {"DelaySeconds": "5"}, "DelaySeconds"),
        ({}, {}, {"VisibilityTimeout": "30", "DelaySeconds": "1"}, "DelaySeconds"),
        (
            {},
            {},
            {"MessageRetentionPeriod": "61", "DelaySeconds": "1"},
            "MessageRetentionPeriod",
        ),
        ({"Policy": POLICY}, {}, {"Policy": SAME_POLICY}, None),
        ({"Policy": POLICY}, {}, {"Policy": POLICY.replace("Allow", "Deny")}, "Policy"),
        ({"Policy": POLICY}, {}, {"Policy": ""}, "Policy"),
        ({}, {}, {"Policy": ""}, None),
        ({"KmsMasterKeyId": "k"}, {}, {"SqsManagedSseEnabled": "false"}, None),
        ({"KmsMasterKeyId": "k"}, {}, {"KmsMasterKeyId": "l"}, "KmsMasterKeyId"),
        ({"KmsDataKeyReusePeriodSeconds": "300"}, {}, {}, None),
        ({}, {}, {"KmsDataKeyReusePeriodSeconds": "300"}, None),
    ],
)
def test_a_second_creation_compares_what_it_names(
    json_sqs: Sqs,
    first: dict[str, str],
    changes: dict[str, str],
    again: dict[str, str],
    differs: str | None,
) -> None:
    url = json_sqs.create("q", **first)
    if changes:
        change(json_sqs, url, **changes)
    if differs is None:
        assert json_sqs.create("q", **again) == url
        return
    refused = json_sqs.refusal("CreateQueue", QueueName="q", Attributes=again)
    assert (refused.code, refused.text) == (
        "QueueAlreadyExists",
        f"A queue already exists with the same name and a different value for attribute {differs}",
    )


@pytest.mark.parametrize(
    "name", ["a b", "x" * 81, "a.b", "q/1", "\u017c", "a.fifo.fifo", "a\n", "a\0"]
)
def test_names_that_are_none(sqs: Sqs, name: str) -> None:
    refused = sqs.refusal("CreateQueue", QueueName=name)
    assert (refused.status, refused.code) == (400, "InvalidParameterValue")
    assert "can only include alphanumeric characters, hyphens, or" in refused.text.lower()


def test_an_empty_name(sqs: Sqs) -> None:
    refused = sqs.refusal("CreateQueue", QueueName="")
    assert refused.code in {"InvalidParameterValue", "MissingParameter"}


@pytest.mark.parametrize("name", ["a", "A-b_9", "a" * 80])
def test_names_that_are_allowed(sqs: Sqs, name: str) -> None:
    assert sqs.create(name).endswith(f"/{name}")


@pytest.mark.parametrize(
    ("name", "attributes"),
    [
        ("q.fifo", {}),
        ("q.fifo", {"FifoQueue": "false"}),
        ("q", {"FifoQueue": "true"}),
        ("or ders.fifo", {"FifoQueue": "true"}),
        ("o" * 76 + ".fifo", {"FifoQueue": "true"}),
        (".fifo", {"FifoQueue": "true"}),
    ],
)
def test_fifo_names_that_are_none(json_sqs: Sqs, name: str, attributes: dict[str, str]) -> None:
    refused = json_sqs.refusal("CreateQueue", QueueName=name, Attributes=attributes)
    assert (refused.code, refused.text) == (
        "InvalidParameterValue",
        "The name of a FIFO queue can only include alphanumeric characters, hyphens, or "
        "underscores, must end with .fifo suffix and be 1 to 80 in length",
    )


def test_the_longest_fifo_name(sqs: Sqs) -> None:
    longest = "x" * 75 + ".fifo"
    assert sqs.create(longest, FifoQueue="true").endswith(longest)


def test_listing_by_prefix(sqs: Sqs) -> None:
    for name in ("b", "ab", "a", "a-", "A"):
        sqs.create(name)
    sqs.create_fifo("ab.fifo")
    with sqs.other(region="eu-west-1") as abroad:
        abroad.create("abc")

    def names(prefix: str) -> list[str]:
        found = sqs.call("ListQueues", QueueNamePrefix=prefix).get("QueueUrls", [])
        return [url.rpartition("/")[2] for url in found]

    assert names("") == ["A", "a", "a-", "ab", "ab.fifo", "b"]
    assert names("a") == ["a", "a-", "ab", "ab.fifo"]
    assert names("ab") == ["ab", "ab.fifo"]
    assert names("zz") == names("a%") == names("a%\0") == []


def test_listing_by_page(sqs: Sqs) -> None:
    urls = [sqs.create(f"q{number}") for number in range(5)]
    pages: list[list[str]] = []
    more: dict[str, Any] = {}
    while not pages or more:
        page = sqs.call("ListQueues", QueueNamePrefix="q", MaxResults=2, **more)
        pages.append(page["QueueUrls"])
        more = {"NextToken": page["NextToken"]} if "NextToken" in page else {}
    assert pages == [urls[:2], urls[2:4], urls[4:]]
    for most in ({"MaxResults": 5}, {}):
        assert sqs.call("ListQueues", **most) == {"QueueUrls": urls}


@pytest.mark.parametrize("most", [0, 1001, -1])
def test_sizes_of_pages_that_are_none(json_sqs: Sqs, most: int) -> None:
    refused = json_sqs.refusal("ListQueues", MaxResults=most)
    assert (refused.code, refused.text) == (
        "InvalidParameterValue",
        f"Value {most} for parameter MaxResults is invalid. "
        "Reason: Must be between 1 and 1000, if provided.",
    )


@pytest.mark.parametrize("token", ["x", "é", "cXVldWVzOg==", "c291cmNlczox", "=" * 300])
def test_tokens_that_are_none(json_sqs: Sqs, token: str) -> None:
    assert json_sqs.refusal("ListQueues", NextToken=token).code == "InvalidParameterValue"


def test_tags(sqs: Sqs) -> None:
    created = sqs.call("CreateQueue", QueueName="q", tags={"env": "prod", "a b": ""})
    url = created["QueueUrl"]
    assert sqs.call("CreateQueue", QueueName="q", tags={"env": "other"})["QueueUrl"] == url
    assert sqs.call("ListQueueTags", QueueUrl=url) == {"Tags": {"env": "prod", "a b": ""}}
    sqs.call("TagQueue", QueueUrl=url, Tags={"env": "test", "Env": "ż&=+", "x": "1"})
    sqs.call("UntagQueue", QueueUrl=url, TagKeys=["x", "unknown", "a b"])
    tags = sqs.call("ListQueueTags", QueueUrl=url)["Tags"]
    assert tags == {"env": "test", "Env": "ż&=+"}
    sqs.call("UntagQueue", QueueUrl=url, TagKeys=["env", "Env"])
    assert sqs.call("ListQueueTags", QueueUrl=url) == {}


def test_tags_that_are_refused(json_sqs: Sqs) -> None:
    url = json_sqs.create("q")
    fifty = {f"k{number}": "v" for number in range(50)}
    for tags in (
        {"": "v"},
        {"k" * 129: "v"},
        {"k": "v" * 257},
        {"k\x00": "v"},
        {"k": "v\x00"},
        fifty | {"one more": "v"},
    ):
        refused = json_sqs.refusal("TagQueue", QueueUrl=url, Tags=tags)
        assert (refused.status, refused.code) == (400, "InvalidParameterValue")
        refused = json_sqs.refusal("CreateQueue", QueueName="tagged", tags=tags)
        assert (refused.status, refused.code) == (400, "InvalidParameterValue")
    for tags in (fifty, {"k0": "w"}):
        json_sqs.call("TagQueue", QueueUrl=url, Tags=tags)
    refused = json_sqs.refusal("TagQueue", QueueUrl=url, Tags={"one more": "v"})
    assert (refused.status, refused.code) == (400, "InvalidParameterValue")


def test_permissions_make_a_policy(sqs: Sqs) -> None:
    url = sqs.create("q")
    arn = sqs.arn(url)
    one = {"AWSAccountIds": ["111111111111"], "Actions": ["SendMessage"]}
    many = {"AWSAccountIds": ["111111111111", "222222222222"], "Actions": ["*", "ReceiveMessage"]}
    sqs.call("AddPermission", QueueUrl=url, Label="one", **one)
    assert sqs.attributes(url, "Policy")["Policy"] == (
        f'{{"Version":"2008-10-17","Id":"{arn}/SQSDefaultPolicy","Statement":['
        '{"Sid":"one","Effect":"Allow","Principal":{"AWS":"arn:aws:iam::111111111111:root"},'
        f'"Action":"SQS:SendMessage","Resource":"{arn}"}}]}}'
    )
    sqs.call("AddPermission", QueueUrl=url, Label="many", **many)
    roots = ["arn:aws:iam::111111111111:root", "arn:aws:iam::222222222222:root"]
    assert json.loads(sqs.attributes(url, "Policy")["Policy"]) == {
        "Version": "2008-10-17",
        "Id": f"{arn}/SQSDefaultPolicy",
        "Statement": [
            {
                "Sid": "one",
                "Effect": "Allow",
                "Principal": {"AWS": roots[0]},
                "Action": "SQS:SendMessage",
                "Resource": arn,
            },
            {
                "Sid": "many",
                "Effect": "Allow",
                "Principal": {"AWS": roots},
                "Action": ["SQS:*", "SQS:ReceiveMessage"],
                "Resource": arn,
            },
        ],
    }
    for label in ("one", "many"):
        sqs.call("RemovePermission", QueueUrl=url, Label=label)
    assert "Policy" not in sqs.attributes(url)


def test_a_permission_joins_a_policy_of_the_owners(sqs: Sqs) -> None:
    statement = {"Effect": "Allow", "Principal": "*", "Action": "*"}
    url = sqs.create(Policy=json.dumps({"Version": "2012-10-17", "Statement": statement}))
    good = {"Label": "a", "AWSAccountIds": ["111111111111"], "Actions": ["SendMessage"]}
    sqs.call("AddPermission", QueueUrl=url, **good)
    first, second = json.loads(sqs.attributes(url, "Policy")["Policy"])["Statement"]
    assert (first, second["Sid"]) == (statement, "a")


@pytest.mark.parametrize(
    ("changes", "code", "text"),
    [
        (
            {"Label": "a b"},
            "InvalidParameterValue",
            "Value a b for parameter Label is invalid. Reason: Can only include alphanumeric "
            "characters, hyphens, or underscores. 1 to 80 in length",
        ),
        (
            {"Actions": ["Fly"]},
            "InvalidParameterValue",
            "Value SQS:Fly for parameter ActionName is invalid. Reason: Please refer to the "
            "appropriate WSDL for a list of valid actions.",
        ),
        (
            {"AWSAccountIds": ["me"]},
            "InvalidParameterValue",
            "Value me for parameter PrincipalId is invalid. Reason: Unable to verify.",
        ),
        (
            {"Actions": ["SendMessage"] * 8},
            "OverLimit",
            "8 Actions were found, maximum allowed is 7.",
        ),
    ],
)
def test_permissions_that_are_none(
    json_sqs: Sqs, changes: dict[str, Any], code: str, text: str
) -> None:
    url = json_sqs.create()
    good = {"Label": "l", "AWSAccountIds": [json_sqs.account], "Actions": ["SendMessage"]}
    refused = json_sqs.refusal("AddPermission", QueueUrl=url, **(good | changes))
    assert (refused.status, refused.code, refused.text) == (
        403 if code == "OverLimit" else 400,
        code,
        text,
    )
    assert "Policy" not in json_sqs.attributes(url)


@pytest.mark.parametrize("kind", ["standard", "fifo"])
def test_a_purge_takes_everything(sqs: Sqs, server: Server, kind: str) -> None:
    url = sqs.create_fifo() if kind == "fifo" else sqs.create()
    for number in range(3):
        ids: dict[str, Any] = {"MessageGroupId": str(number)} if kind == "fifo" else {}
        delay: dict[str, Any] = {} if kind == "fifo" else {"DelaySeconds": number % 2 * 60}
        sqs.send(url, **ids, **delay)
        sqs.send(url, f"{number}", **ids)
    [leased] = sqs.receive(url, 1)
    sqs.call("PurgeQueue", QueueUrl=url)
    assert sqs.counts(url) == (0, 0, 0)
    sqs.delete(url, leased)
    server.advance(61)
    assert sqs.bodies(url) == []
    sqs.call("PurgeQueue", QueueUrl=url)


@pytest.mark.parametrize("kind", ["standard", "fifo"])
def test_a_deleted_queue_is_gone_and_its_name_returns_empty(
    sqs: Sqs, server: Server, kind: str
) -> None:
    url = sqs.create_fifo("q.fifo") if kind == "fifo" else sqs.create("q")
    sqs.send(url, **({"MessageGroupId": "g"} if kind == "fifo" else {}))
    sqs.call("DeleteQueue", QueueUrl=url)
    for action, members in (
        ("ReceiveMessage", {}),
        ("SendMessage", {"MessageBody": "b", "MessageGroupId": "g"}),
        ("GetQueueAttributes", {"AttributeNames": ["All"]}),
        ("SetQueueAttributes", {"Attributes": {"DelaySeconds": "1"}}),
        ("PurgeQueue", {}),
        ("TagQueue", {"Tags": {"a": "b"}}),
        ("UntagQueue", {"TagKeys": ["a"]}),
        ("ListQueueTags", {}),
        ("ListDeadLetterSourceQueues", {}),
        ("AddPermission", {"Label": "l", "AWSAccountIds": ["1" * 12], "Actions": ["*"]}),
        ("RemovePermission", {"Label": "l"}),
        ("DeleteQueue", {}),
    ):
        assert sqs.refusal(action, QueueUrl=url, **members).code.endswith("NonExistentQueue")
    assert sqs.call("ListQueues") == {}
    server.advance(61)
    again = sqs.create_fifo("q.fifo") if kind == "fifo" else sqs.create("q")
    assert again == url
    assert sqs.bodies(url) == []


def test_the_intervals_of_aws_can_be_switched_off(relaxed_server: Server) -> None:
    with Sqs("json", relaxed_server.url) as sqs:
        url = sqs.create("q")
        for _ in range(2):
            sqs.call("PurgeQueue", QueueUrl=url)
        sqs.call("DeleteQueue", QueueUrl=url)
        assert sqs.create("q") == url


def test_a_queue_url_by_owner(sqs: Sqs) -> None:
    url = sqs.create("q")
    members = {"QueueName": "q", "QueueOwnerAWSAccountId": sqs.account}
    with Sqs(sqs.wire, sqs.url) as stranger:
        for client in (sqs, stranger):
            assert client.call("GetQueueUrl", **members) == {"QueueUrl": url}
        for owner in ({}, {"QueueOwnerAWSAccountId": "me"}):
            refused = stranger.refusal("GetQueueUrl", QueueName="q", **owner)
            assert refused.code.endswith("NonExistentQueue")


def test_last_modified_moves_with_a_change(sqs: Sqs, server: Server) -> None:
    url = sqs.create()
    before = sqs.attributes(url, *STAMPS)
    server.advance(10)
    sqs.call("SetQueueAttributes", QueueUrl=url, Attributes={"DelaySeconds": "1"})
    after = sqs.attributes(url, *STAMPS)
    assert after["CreatedTimestamp"] == before["CreatedTimestamp"]
    assert int(after["LastModifiedTimestamp"]) >= int(before["LastModifiedTimestamp"]) + 10
