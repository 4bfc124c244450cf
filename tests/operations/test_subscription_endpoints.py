"""Endpoints that each protocol accepts."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuegate.gateway.faces.aws.aws_refusals import InvalidParameter
from queuegate.gateway.faces.aws.sns.sns_subscriptions import check_endpoint, is_confirmed_at_once
from queuegate.storage.model import Topic
from queuegate.storage.storage_errors import AuthorizationError, Rejected, WebHookRefused
from tests.operations.conftest import ACCOUNT, REGION

PROTOCOLS = (
    "http",
    "https",
    "email",
    "email-json",
    "sms",
    "sqs",
    "application",
    "lambda",
    "firehose",
)
QUEUE = f"arn:aws:sqs:{REGION}:{ACCOUNT}:orders"


def topic(name: str = "news") -> Topic:
    return Topic(
        topic_id=1,
        account_id=ACCOUNT,
        region=REGION,
        name=name,
        arn=f"arn:aws:sns:{REGION}:{ACCOUNT}:{name}",
        is_fifo=name.endswith(".fifo"),
        attributes={},
        tags={},
        created_at=datetime(2026, 11, 21, tzinfo=UTC),
        subscriptions_deleted=0,
        signature_version="1",
        content_based_deduplication=False,
        deduplication_per_group=False,
        archive_days=0,
        maximum_message_bytes=262_144,
    )


def refusal(protocol: str, endpoint: str, name: str = "news") -> str:
    with pytest.raises((InvalidParameter, WebHookRefused)) as refused:
        check_endpoint(topic(name), protocol, endpoint)
    return str(refused.value)


@pytest.mark.parametrize("protocol", ["", "SQS", "ftp", "mailto", "http ", "\x00"])
def test_other_protocols_do_not_exist(protocol: str) -> None:
    assert refusal(protocol, QUEUE) == (
        f"Invalid parameter: Amazon SNS does not support this protocol string: {protocol}"
    )


@pytest.mark.parametrize("protocol", [one for one in PROTOCOLS if one != "sqs"])
def test_fifo_topic_takes_queues_only(protocol: str) -> None:
    text = refusal(protocol, "https://hooks.example/", "news.fifo")
    assert text == f"Invalid parameter: Invalid protocol type: {protocol}"


def test_fifo_topic_takes_both_kinds_of_queue() -> None:
    check_endpoint(topic("news.fifo"), "sqs", QUEUE)
    check_endpoint(topic("news.fifo"), "sqs", QUEUE + ".fifo")


def test_standard_topic_takes_no_fifo_queue() -> None:
    assert refusal("sqs", QUEUE + ".fifo") == (
        "Invalid parameter: Invalid parameter: Endpoint Reason: FIFO SQS Queues can not be "
        "subscribed to standard SNS topics"
    )


@pytest.mark.parametrize(
    "endpoint",
    [
        "",
        "orders",
        f"http://localhost:9324/{ACCOUNT}/orders",
        f"arn:aws:sqs:{REGION}:{ACCOUNT}:or ders",
        f"arn:aws:sns:{REGION}:{ACCOUNT}:orders",
        f"arn:aws:sqs::{ACCOUNT}:orders",
    ],
)
def test_queue_must_be_an_arn(endpoint: str) -> None:
    assert refusal("sqs", endpoint) == "Invalid parameter: SQS endpoint ARN"


@pytest.mark.parametrize(
    ("protocol", "endpoint"),
    [
        ("http", "https://hooks.example/"),
        ("https", "http://hooks.example/"),
        ("http", "hooks.example"),
        ("http", "HTTP://hooks.example"),
        ("https", ""),
        ("https", QUEUE),
    ],
)
def test_scheme_must_be_the_protocol(protocol: str, endpoint: str) -> None:
    assert refusal(protocol, endpoint) == (
        "Invalid parameter: Endpoint must match the specified protocol"
    )


@pytest.mark.parametrize(
    "rest",
    [
        "",
        "/path",
        ":80/",
        "hooks.example:0/",
        "hooks.example:99999/",
        "hooks.example:http/",
        "@hooks.example/",
        ":@hooks.example/",
        "user@hooks.example@inside/",
        "user:%E2%82%AC@hooks.example/",
        "user:secret@/",
        "hooks.example\\@inside/",
        "hooks.example/a b",
        "hooks.example/é",
        "hooks.example/\n",
        "hooks.example/\x00",
        "hooks.exa%6Dple/",
        "[::1",
        "[hooks]/",
        "[v1.x]/",
        "8.8.8.8[::1]/",
        "(*[::1]/",
        "[::1]x/",
        "[::1]:80:80/",
        "[fe80::1%25eth0]/",
        "a" * 254 + "/",
        "hooks.example/" + "a" * 2048,
    ],
)
def test_url_without_oddities(rest: str) -> None:
    assert refusal("https", f"https://{rest}") == "Invalid parameter: Endpoint"


@pytest.mark.parametrize(
    "rest",
    [
        "hooks.example",
        "hooks.example:8443/a/@me?b=c&d=%20#e",
        "8.8.8.8/",
        "[2606:4700:4700::1111]:8443/",
        "hooks_1.example./",
        "user@hooks.example/",
        "user:secret@hooks.example:8443/",
        "us%40er:se:cr%20et@hooks.example/",
        "1.2.3.4.example/",
    ],
)
def test_url_of_the_internet(rest: str) -> None:
    check_endpoint(topic(), "https", f"https://{rest}")


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "LOCALHOST",
        "localhost.",
        "hook.localhost",
        "127.0.0.1",
        "127.1",
        "2130706433",
        "0x7f000001",
        "0177.0.0.1",
        "0",
        "10.1.2.3",
        "172.16.0.1",
        "192.168.1.1",
        "169.254.169.254",
        "100.64.0.1",
        "[::1]",
        "[::]",
        "[::ffff:10.0.0.1]",
        "[fd00::1]",
        "[fe80::1]",
        "192.0.0.192",
        "user:secret@10.0.0.1",
        "8.8.8.8:80@127.0.0.1",
    ],
)
def test_inside_addresses_are_refused_unless_allowed(host: str) -> None:
    for protocol in ("http", "https"):
        endpoint = f"{protocol}://{host}:8080/hook"
        with pytest.raises(AuthorizationError) as refused:
            check_endpoint(topic(), protocol, endpoint)
        assert str(refused.value) == "Not authorized to subscribe internal endpoints"
        check_endpoint(topic(), protocol, endpoint, allow_private=True)


@pytest.mark.parametrize(
    "endpoint", ["", "reader", "@example.com", "reader@", "a@b@c", "a b@c", "a@c\n", "a\x00@c"]
)
def test_mail_address_has_two_parts(endpoint: str) -> None:
    for protocol in ("email", "email-json"):
        assert refusal(protocol, endpoint).startswith("Invalid parameter: E")


def test_mail_addresses() -> None:
    for endpoint in ("reader@example.com", "o'neil+sns@mail.example", "ä@exämple.com"):
        check_endpoint(topic(), "email", endpoint)


@pytest.mark.parametrize(
    "endpoint",
    ["", "NAA+15551234567", "+", "+0555123", "+15551234567890123", "+1--555", "-155", "+155/"],
)
def test_phone_number_is_e164(endpoint: str) -> None:
    assert refusal("sms", endpoint) == f"Invalid SMS endpoint: {endpoint}"


def test_phone_numbers() -> None:
    for endpoint in ("+15551234567", "15551234567", "+1-555-123.4567"):
        check_endpoint(topic(), "sms", endpoint)


@pytest.mark.parametrize(
    ("protocol", "text"),
    [
        ("lambda", "Invalid parameter: Lambda endpoint ARN"),
        ("firehose", "Invalid parameter: Firehose endpoint ARN"),
        ("application", "Invalid parameter: Application endpoint ARN"),
    ],
)
def test_other_arns_are_of_their_services(protocol: str, text: str) -> None:
    for endpoint in ("", "handle", QUEUE, f"arn:aws:{protocol}:{REGION}:{ACCOUNT}:handle"):
        assert refusal(protocol, endpoint) == text


def test_who_confirms_at_once() -> None:
    other = f"arn:aws:sqs:{REGION}:999988887777:orders"
    assert is_confirmed_at_once(ACCOUNT, "sqs", QUEUE)
    assert not is_confirmed_at_once(ACCOUNT, "sqs", other)
    assert is_confirmed_at_once("999988887777", "sqs", other)
    assert is_confirmed_at_once(ACCOUNT, "sms", "+15551234567")
    for protocol in ("http", "https", "email", "email-json"):
        assert not is_confirmed_at_once(ACCOUNT, protocol, "anything")


@given(
    protocol=st.sampled_from(PROTOCOLS),
    endpoint=st.text(max_size=60)
    | st.text("https://[]:@%.a1\\", max_size=20).map(lambda rest: f"https://{rest}")
    | st.text("https://[]:@%.a1\\", max_size=20).map(lambda rest: f"http://{rest}")
    | st.text(":arnws/-", max_size=30).map(lambda rest: f"arn:aws:lambda:r:{ACCOUNT}:{rest}"),
)
def test_any_text_is_taken_or_refused(protocol: str, endpoint: str) -> None:
    try:
        check_endpoint(topic(), protocol, endpoint)
    except Rejected:
        return
    # What is taken can be stored, and tells its owner.
    assert endpoint.encode()
    assert "\x00" not in endpoint
    is_confirmed_at_once(ACCOUNT, protocol, endpoint)
