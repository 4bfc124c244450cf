from typing import Any
from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuegate.protocol.aws_errors import NO_ACTION_BODY, NO_ACTION_STATUS
from queuegate.protocol.malformed import Malformed
from queuegate.protocol.service_detection import NOT_ON_QUEUE_PATH, Detected, detect
from queuegate.protocol.sqs_shapes import SQS
from queuegate.protocol.urls import (
    QueueAddress,
    RegionIn,
    queue_from_path,
    queue_from_url,
    queue_url,
)
from tests.protocol import contract

ROUTING = {row["case"]: row for row in contract.load("query_forms")["routing"]}
FORM = "application/x-www-form-urlencoded; charset=utf-8"
JSON = "application/x-amz-json-1.0"
ACCOUNT = "123456789012"
HOME = "us-east-1"
OTHER_URL = f"http://localhost:9324/{ACCOUNT}/queue2"


def _authorization(service: str) -> str:
    return (
        f"AWS4-HMAC-SHA256 Credential=AKID/20261121/us-east-1/{service}/aws4_request, "
        "SignedHeaders=host, Signature=00"
    )


def _route(case: str) -> tuple[dict[str, Any], Detected]:
    row = ROUTING[case]
    method, _, url = row["http"].partition(" ")
    parts = urlsplit(url.replace("<url of queue2>", OTHER_URL))
    headers = {name.lower(): value for name, value in row.get("headers", {}).items()}
    body = row.get("encoded", "").encode()
    if body:
        headers["content-type"] = FORM
    return row["expect"], detect(method, parts.path, parts.query.encode(), headers, body)


def test_queue_comes_from_the_path() -> None:
    expect, detected = _route("queue from path (old .NET, raw HTTP)")
    assert detected.path_queue == QueueAddress(expect["account"], expect["queue"])
    assert detected.action == "ReceiveMessage"
    assert "QueueUrl" not in detected.params


def test_queue_url_names_another_queue_than_the_path() -> None:
    expect, detected = _route("QueueUrl parameter wins over path")
    assert detected.path_queue is not None
    assert detected.path_queue.name == "queue1"
    found = queue_from_url(detected.params["QueueUrl"])
    assert found is not None
    assert (found.account_id, found.name) == (ACCOUNT, expect["queue"])


def test_create_and_list_are_marked_as_invalid_on_a_queue_path() -> None:
    _, detected = _route("CreateQueue/ListQueues on a queue path")
    assert detected.path_queue is not None
    assert detected.action in NOT_ON_QUEUE_PATH
    _, detected = _route("GetQueueUrl on a queue path is allowed")
    assert detected.action == "GetQueueUrl"
    assert detected.action not in NOT_ON_QUEUE_PATH
    assert set(SQS.actions) >= NOT_ON_QUEUE_PATH


def test_no_action_at_all() -> None:
    expect, detected = _route("no Action at all")
    assert (detected.service, detected.wire, detected.action) == ("sqs", "query", None)
    assert expect == {"status": NO_ACTION_STATUS, "body": NO_ACTION_BODY.decode()}


def test_unknown_action_keeps_its_name() -> None:
    _, detected = _route("unknown Action")
    assert (detected.service, detected.action) == ("sqs", "FooBar")


def test_version_may_be_omitted() -> None:
    _, detected = _route("Version omitted is accepted")
    assert (detected.service, detected.action) == ("sqs", "GetQueueAttributes")
    assert not detected.wants_json


def test_get_with_accept_json_wants_json() -> None:
    _, detected = _route("Accept: application/json on Query")
    assert detected.wants_json


def test_every_routing_row_has_a_test() -> None:
    assert len(ROUTING) == 8


@pytest.mark.parametrize(
    "content_type",
    [
        "application/x-amz-json-1.0",
        "application/x-amz-json-1.1",
        "Application/X-Amz-Json-1.0; Charset=UTF-8",
        "text/plain",
        None,
    ],
)
def test_target_decides_whatever_the_content_type(content_type: str | None) -> None:
    headers = {"x-amz-target": "AmazonSQS.SendMessage"}
    if content_type:
        headers["content-type"] = content_type
    detected = detect("POST", f"/{ACCOUNT}/q", b"Action=DeleteQueue", headers, b"{}")
    assert detected == Detected("sqs", "json", "SendMessage", {}, QueueAddress(ACCOUNT, "q"))


@pytest.mark.parametrize("target", [None, "", "SendMessage", "AmazonSES.Publish", "AmazonSQS."])
def test_json_without_one_of_our_targets_has_no_action(target: str | None) -> None:
    headers = {"content-type": JSON} | ({} if target is None else {"x-amz-target": target})
    detected = detect("POST", "/", b"", headers, b"{}")
    assert (detected.service, detected.wire, detected.action) == ("sqs", "json", None)


def test_scope_of_the_signature_wins_over_the_target() -> None:
    headers = {"x-amz-target": "AmazonSQS.SendMessage", "authorization": _authorization("sns")}
    detected = detect("POST", "/", b"", headers, b"{}")
    assert (detected.service, detected.wire, detected.action) == ("sns", "json", None)
    headers["authorization"] = _authorization("execute-api")
    assert detect("POST", "/", b"", headers, b"{}").service == "sqs"
    headers["authorization"] = _authorization("sqs")
    assert detect("POST", "/", b"", headers, b"{}").action == "SendMessage"


@pytest.mark.parametrize(
    ("service", "headers", "path", "query"),
    [
        ("sns", {"authorization": _authorization("sns")}, "/", "Version=2012-11-05"),
        ("sns", {}, "/", "X-Amz-Credential=A%2F2%2Fus-east-1%2Fsns%2Faws4_request"),
        ("sns", {}, "/", "Version=2010-03-31&Action=AddPermission"),
        ("sqs", {}, "/", "Version=2012-11-05&Action=AddPermission"),
        ("sqs", {}, "/", "Version=2009-02-01&Action=Foo"),
        ("sqs", {}, "/", "Version=1999-01-01&Action=SendMessage"),
        ("sqs", {}, "/", ""),
        ("sqs", {"authorization": "Bearer x"}, "/", ""),
    ],
)
def test_query_service(service: str, headers: dict[str, str], path: str, query: str) -> None:
    detected = detect("POST", path, query.encode(), headers, b"")
    assert (detected.service, detected.wire) == (service, "query")


TOPIC = "TopicArn=arn:aws:sns:us-east-1:123456789012:t"


@pytest.mark.parametrize(
    ("service", "path", "query"),
    [
        ("sns", "/", "Version=2010-03-31&Action=Publish"),
        ("sns", "/", "Action=Publish"),
        ("sns", "/", f"Action=ConfirmSubscription&{TOPIC}&Token=51b2ff3edb475b7d91550e0ab6edf0c1"),
        ("sns", "/", "Action=Unsubscribe&SubscriptionArn=arn:aws:sns:us-east-1:123456789012:t:1"),
        ("sns", "/", f"Action=AddPermission&{TOPIC}&Label=L"),
        ("sns", "/", f"Action=RemovePermission&{TOPIC}&Label=L"),
        ("sns", "/", "Action=RemovePermission&Version=2010-03-31"),
        ("sqs", "/", "Action=RemovePermission&Label=L"),
        ("sqs", "/", f"Action=RemovePermission&{TOPIC}&QueueUrl=http://h/{ACCOUNT}/q"),
        ("sqs", f"/{ACCOUNT}/q", f"Action=AddPermission&{TOPIC}"),
        ("sqs", "/", f"Action=AddPermission&{TOPIC}&Version=2012-11-05"),
        ("sqs", "/", f"Action=Nothing&{TOPIC}"),
    ],
)
def test_service_of_a_query_without_a_scope(service: str, path: str, query: str) -> None:
    detected = detect("GET", path, query.encode(), {}, b"")
    assert detected.service == service
    assert detected.action == detected.params["Action"]
    posted = detect("POST", path, b"", {"content-type": FORM}, query.encode())
    assert (posted.service, posted.params) == (service, detected.params)


def test_scope_decides_between_the_services_of_an_action() -> None:
    query = f"Action=AddPermission&{TOPIC}&Version=2010-03-31".encode()
    for service in ("sqs", "sns"):
        headers = {"authorization": _authorization(service)}
        assert detect("POST", "/", query, headers, b"").service == service


@pytest.mark.parametrize(
    "row",
    [row for row in contract.load("query_forms")["serialized"] if row["service"] == "sns"],
    ids=lambda row: row["action"],
)
def test_forms_of_topics_in_the_contract(row: dict[str, Any]) -> None:
    body = row["encoded"].encode()
    detected = detect("POST", "/", b"", {"content-type": FORM}, body)
    assert (detected.service, detected.wire, detected.action) == ("sns", "query", row["action"])


def test_json_of_topics() -> None:
    headers = {"content-type": JSON, "x-amz-target": "AmazonSNS.Publish"}
    for authorization in ("", _authorization("sns")):
        detected = detect("POST", "/", b"", headers | {"authorization": authorization}, b"{}")
        assert detected == Detected("sns", "json", "Publish")
    detected = detect("POST", "/", b"", headers | {"authorization": _authorization("sqs")}, b"{}")
    assert (detected.service, detected.action) == ("sqs", None)


@pytest.mark.parametrize("path", ["/schedules/daily", "/schedule-groups", "/tags/arn%3Aaws"])
def test_scheduler_is_known_by_its_paths_and_its_scope(path: str) -> None:
    assert detect("GET", path, b"", {}, b"").wire == "rest"
    headers = {"authorization": _authorization("scheduler")}
    assert detect("GET", "/", b"", headers, b"").service == "scheduler"
    assert detect("GET", path, b"", {"authorization": _authorization("sqs")}, b"").service == "sqs"


def test_scheduler_speaks_no_other_wire_than_its_own() -> None:
    headers = {"authorization": _authorization("scheduler"), "content-type": JSON}
    assert detect("POST", "/schedules/a", b"", headers, b"{}") == Detected(
        "scheduler", "rest", None
    )
    presigned = f"X-Amz-Credential=AKIDEXAMPLE/20261121/us-east-1/scheduler/aws4_request&{TOPIC}"
    found = detect("GET", "/", presigned.encode(), {}, b"")
    assert (found.service, found.wire, found.action) == ("scheduler", "rest", None)
    assert found.params["X-Amz-Credential"]


@pytest.mark.parametrize(
    ("query", "headers"),
    [
        ("Action=GetCallerIdentity&Version=2011-06-15", {}),
        ("Action=GetCallerIdentity", {}),
        ("Action=GetCallerIdentity", {"authorization": _authorization("sts")}),
        ("Action=AssumeRole&Version=2011-06-15", {}),
        ("Action=ListQueues", {"authorization": _authorization("sts")}),
        ("Action=X&X-Amz-Credential=A/20261121/us-east-1/sts/aws4_request", {}),
    ],
)
def test_sts_is_known_by_scope_version_and_action(query: str, headers: dict[str, str]) -> None:
    for method, in_url, body in (("GET", query, ""), ("POST", "", query)):
        own = headers | ({"content-type": FORM} if body else {})
        found = detect(method, "/", in_url.encode(), own, body.encode())
        assert (found.service, found.wire) == ("sts", "query")
        assert found.action == found.params["Action"]


def test_form_and_query_string_are_merged_and_the_form_wins() -> None:
    body = b"Action=SendMessage&MessageBody=form"
    for headers in ({"content-type": FORM}, {}):
        detected = detect("POST", "/", b"MessageBody=url&DelaySeconds=1", headers, body)
        expected = {"Action": "SendMessage", "MessageBody": "form", "DelaySeconds": "1"}
        assert detected.params == expected
    detected = detect("POST", "/", b"Action=ListQueues", {"content-type": "text/plain"}, body)
    assert detected.params == {"Action": "ListQueues"}


def test_only_a_get_is_answered_in_json() -> None:
    headers = {"accept": "application/json", "content-type": FORM}
    assert not detect("POST", "/", b"", headers, b"Action=ListQueues").wants_json


def test_parameters_that_cannot_be_decoded_are_malformed() -> None:
    with pytest.raises(Malformed):
        detect("GET", "/", b"Action=%ff", {}, b"")


@pytest.mark.parametrize(
    ("text", "address"),
    [
        (f"https://sqs.us-east-1.amazonaws.com/{ACCOUNT}/q", (ACCOUNT, "q", "us-east-1")),
        (f"https://queue.amazonaws.com/{ACCOUNT}/q.fifo", (ACCOUNT, "q.fifo")),
        (f"https://eu-west-1.queue.amazonaws.com/{ACCOUNT}/q", (ACCOUNT, "q", "eu-west-1")),
        (
            f"https://vpce-1.sqs.us-gov-west-1.vpce.amazonaws.com/{ACCOUNT}/q",
            (ACCOUNT, "q", "us-gov-west-1"),
        ),
        (f"http://sqs.eu-west-1.localhost:9324/{ACCOUNT}/q", (ACCOUNT, "q", "eu-west-1")),
        (
            f"http://sqs.eu-west-1.localhost/queue/us-east-1/{ACCOUNT}/q",
            (ACCOUNT, "q", "us-east-1"),
        ),
        (f"http://sqs.internal.example/{ACCOUNT}/q", (ACCOUNT, "q")),
        (f"http://localhost:9324/{ACCOUNT}/q", (ACCOUNT, "q")),
        (f"http://localhost:9324/queue/us-east-1/{ACCOUNT}/q", (ACCOUNT, "q", "us-east-1")),
        (f"http://localhost:9324/queue/US/{ACCOUNT}/q", (ACCOUNT, "q")),
        (f"http://[::1]:9324/proxied/here/{ACCOUNT}/q/", (ACCOUNT, "q")),
        (f"http://host/{ACCOUNT}/q?x=/a/b#c", (ACCOUNT, "q")),
        (f"http://host/{ACCOUNT}/q%2Efifo", (ACCOUNT, "q.fifo")),
        ("http://host/queue/q", (None, "q")),
        ("http://host/q", (None, "q")),
        (f"/{ACCOUNT}/q", (ACCOUNT, "q")),
        (f"{ACCOUNT}/q", (ACCOUNT, "q")),
        ("my-queue", (None, "my-queue")),
        ("", None),
        ("http://host", None),
        ("http://host/", None),
        ("http://host/elsewhere/q", None),
        ("http://host/12345/q", None),
        (f"http://host/{ACCOUNT}/a b", None),
        (f"http://host/{ACCOUNT}/q%00", None),
        (f"http://host/{ACCOUNT}/q\n", None),
        ("http://host/١٢٣٤٥٦٧٨٩٠١٢/q", None),
        ("q" * 81, None),
        ("http://host/" + "x" * 1_000_000, None),
    ],
    ids=lambda value: str(value)[:60],
)
def test_queue_of_a_url(text: str, address: tuple[Any, ...] | None) -> None:
    assert queue_from_url(text) == (None if address is None else QueueAddress(*address))


@pytest.mark.parametrize(
    ("base_url", "region", "region_in", "url"),
    [
        ("http://host:1", HOME, "none", f"http://host:1/{ACCOUNT}/q"),
        ("http://host:1", "eu-west-1", "none", f"http://host:1/{ACCOUNT}/q"),
        (
            "http://sqs.eu-west-1.host",
            "eu-west-1",
            "none",
            f"http://sqs.eu-west-1.host/{ACCOUNT}/q",
        ),
        (
            "http://sqs.eu-west-1.host",
            HOME,
            "none",
            f"http://sqs.eu-west-1.host/queue/{HOME}/{ACCOUNT}/q",
        ),
        ("http://host:1", HOME, "path", f"http://host:1/{ACCOUNT}/q"),
        ("http://host:1", "eu-west-1", "path", f"http://host:1/queue/eu-west-1/{ACCOUNT}/q"),
        ("http://host:1", "r", "host", f"http://host:1/queue/r/{ACCOUNT}/q"),
        ("http://host:1", HOME, "host", f"http://sqs.{HOME}.host:1/{ACCOUNT}/q"),
        ("http://host:1", "eu-west-1", "host", f"http://sqs.eu-west-1.host:1/{ACCOUNT}/q"),
        (f"http://sqs.{HOME}.host", "eu-west-1", "host", f"http://sqs.eu-west-1.host/{ACCOUNT}/q"),
        (
            "http://127.0.0.1:1",
            "eu-west-1",
            "host",
            f"http://127.0.0.1:1/queue/eu-west-1/{ACCOUNT}/q",
        ),
        ("http://[::1]:1", HOME, "host", f"http://[::1]:1/{ACCOUNT}/q"),
        (
            "http://sqs.eu-west-1.host",
            "eu-west-1",
            "path",
            f"http://sqs.eu-west-1.host/{ACCOUNT}/q",
        ),
        (
            "http://sqs.eu-west-1.host",
            HOME,
            "path",
            f"http://sqs.eu-west-1.host/queue/{HOME}/{ACCOUNT}/q",
        ),
    ],
)
def test_url_of_a_queue_leads_back_to_it(
    base_url: str, region: str, region_in: RegionIn, url: str
) -> None:
    address = QueueAddress(ACCOUNT, "q")
    assert queue_url(base_url, region, address, home_region=HOME, region_in=region_in) == url
    found = queue_from_url(url)
    assert found is not None
    signed_for = region if region_in == "none" else HOME
    assert found._replace(region=found.region or signed_for) == (ACCOUNT, "q", region)


@pytest.mark.parametrize(
    ("path", "address"),
    [
        (f"/{ACCOUNT}/q", (ACCOUNT, "q")),
        (f"/queue/eu-west-1/{ACCOUNT}/q", (ACCOUNT, "q", "eu-west-1")),
        ("/queue/q", (None, "q")),
        ("/", None),
        ("/health", None),
        ("/q", None),
        ("/channels/q", None),
        (f"/{ACCOUNT}", None),
    ],
)
def test_queue_of_a_path(path: str, address: tuple[Any, ...] | None) -> None:
    assert queue_from_path(path) == (None if address is None else QueueAddress(*address))


@given(st.text(max_size=40))
def test_any_text_names_a_queue_or_none(text: str) -> None:
    found = queue_from_url(text)
    assert found is None or found.name in text or "%" in text
    assert queue_from_path(text) in (found, None)
